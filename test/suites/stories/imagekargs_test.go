package stories_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/settings"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/rpmostree"
)

// withImageKargs adds a derived layer with a kargs.d file.
func withImageKargs(text string) oscontainer.Option {
	return oscontainer.WithDerived(oscontainer.File("usr/lib/bootc/kargs.d/10-test.toml", text))
}

func applying(m *machine.Machine) { m.ImageKargs = settings.ImageKargsApply }

// TestImageKargs: a first boot names the kernel arguments that an image brings, or applies
// them in its one transaction, with any engine and any way to choose. The next boot proves
// them.
func TestImageKargs(t *testing.T) {
	const own = "loglevel=4 image.only=1"
	for _, c := range []struct {
		name, engine, packages string
		conf, cmdline          string
		flag                   settings.ImageKargs
		applied                bool
	}{
		{name: "nobody chose", engine: "ostree"},
		{name: "print goes before the settings", engine: "ostree", conf: "image-kargs=apply", flag: settings.ImageKargsPrint},
		{name: "by the command line", engine: "ostree", flag: settings.ImageKargsApply, applied: true},
		{name: "by the settings", engine: "ostree", conf: "image-kargs=apply", applied: true},
		{name: "by the kernel command line", engine: "ostree", conf: "image-kargs=print", cmdline: " pivot.image-kargs=apply", applied: true},
		{name: "by rpm-ostree", engine: "rpm-ostree", flag: settings.ImageKargsApply, applied: true},
		{name: "by rpm-ostree, with packages", engine: "auto", packages: "strace;", flag: settings.ImageKargsApply, applied: true},
		{name: "named by rpm-ostree", engine: "rpm-ostree"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 8)
			h := newHost(t)
			if c.engine != "ostree" {
				h.InstallRpmOstree(rpmostree.Control{Version: "2026.2"})
			}
			if c.packages != "" {
				h.Layer(c.packages)
			}
			serve(t, h, h.NativeImage(withImageKargs(`kargs = ["loglevel=4", "image.only=1"]`)))
			if c.conf != "" {
				h.Write(settings.Path, []byte(c.conf+"\n"))
			}
			h.Write("/proc/cmdline", append([]byte(strings.TrimSpace(string(h.Read("/proc/cmdline")))), c.cmdline+"\n"...))
			notes, err := bootWith(t, h, c.engine, func(m *machine.Machine) { m.ImageKargs = c.flag })
			if err != nil {
				t.Fatal(err, notes)
			}
			want := "(/usr/lib/bootc/kargs.d) are left out: " + own + "; --image-kargs=apply adds " + own
			if c.applied {
				want = "(/usr/lib/bootc/kargs.d): it adds " + own
			}
			if !strings.Contains(notes, want) {
				t.Errorf("notes %s, want %s", notes, want)
			}
			expectOld(t, h)
			h.Boot()
			// The next boot's unit has no flags: it proves what was committed.
			if _, err := bootWith(t, h, c.engine); err != nil {
				t.Fatal(err)
			}
			expectNew(t, h)
			expectClosed(t, h)
			if h.Reboots != 1 || strings.Contains(h.Options(), own) != c.applied {
				t.Errorf("%d reboots, options %s", h.Reboots, h.Options())
			}
			expectStatus(t, h)
			m := newMachine(t, h)
			if differences, err := m.Verify(t.Context()); err != nil || len(differences) > 0 {
				t.Errorf("differences %q, %v", differences, err)
			}
			if image := m.Progress.Content.Target.Kargs.Image; (image != nil) != c.applied || c.applied && image.Now.String() != own {
				t.Errorf("the journal has %+v", image)
			}
			h.Write("/proc/cmdline", []byte(strings.ReplaceAll(string(h.Read("/proc/cmdline")), " image.only=1", "")))
			if differences, err := m.Verify(t.Context()); err != nil || (len(differences) > 0) != c.applied {
				t.Errorf("without one of them running: differences %q, %v", differences, err)
			}
		})
	}
}

// TestImageKargsCommitFails: the next attempt keeps the choice of the first.
func TestImageKargsCommitFails(t *testing.T) {
	h := newHost(t)
	serve(t, h, h.NativeImage(withImageKargs(`kargs = ["loglevel=4"]`)))
	if notes, err := bootWith(t, h, "ostree", applying); err != nil {
		t.Fatal(err, notes)
	}
	if err := h.Undeploy(0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		h.Boot()
		if notes, err := bootWith(t, h, "ostree"); err != nil {
			t.Fatal(err, notes)
		}
	}
	expectNew(t, h)
	expectClosed(t, h)
	if !strings.Contains(h.Options(), " loglevel=4 ") {
		t.Errorf("options %s", h.Options())
	}
}

// rebaseTo moves the host with a pivot by hand and boots it. It returns the plan.
func rebaseTo(t *testing.T, h *hostdir.Host, r day2.Rebase) pivot.Plan {
	t.Helper()
	r.Machine = newMachine(t, h)
	applying(r.Machine)
	before, err := r.Plan(t.Context(), day2.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if before.ImageKargs == nil || before.ImageKargs.Known || !strings.Contains(strings.Join(before.Notes, "\n"), "they are known when it is in the host's repository") {
		t.Errorf("a plan without the image: %+v, %q", before.ImageKargs, before.Notes)
	}
	pull(t, h, r.Image)
	plan, err := r.Plan(t.Context(), day2.RunOptions{})
	if err != nil || !plan.ImageKargs.Known {
		t.Fatalf("plan %+v, %v", plan.ImageKargs, err)
	}
	if changed, err := r.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	h.Boot()
	again := day2.Rebase{Machine: newMachine(t, h), Image: r.Image, Append: r.Append, Delete: r.Delete}
	applying(again.Machine)
	if changed, err := again.Run(t.Context(), day2.RunOptions{}); err != nil || changed {
		t.Errorf("the same again: changed %v, %v", changed, err)
	}
	if plan, err := again.Plan(t.Context(), day2.RunOptions{}); err != nil || plan.Changed {
		t.Errorf("the same planned again: %+v, %v", plan, err)
	}
	return plan
}

// pull imports an image into the host's repository, as "pivot image import" does.
func pull(t *testing.T, h *hostdir.Host, name string) {
	t.Helper()
	ref, err := imageref.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	image, err := (&osimage.Puller{Root: h.Root}).Open(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	repo, view, err := h.OpenRepo()
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	if _, err := image.Import(t.Context(), repo, nil); err != nil {
		t.Fatal(err)
	}
}

// withoutOSTree returns a boot entry's arguments without the one that names the deployment.
func withoutOSTree(line kargs.Line) string {
	return slices.DeleteFunc(slices.Clone(line), func(arg string) bool { return strings.HasPrefix(arg, "ostree=") }).String()
}

// TestImageKargsFollow: over several pivots by hand the command line follows what the images
// bring, and keeps manual changes. Each plan shows the later result.
func TestImageKargsFollow(t *testing.T) {
	h := hostdir.New(t)
	const inherited = `root=LABEL=root rw keep="a b" $ignition_firstboot`
	for _, step := range []struct {
		name, brings string
		rebase       day2.Rebase
		want         string
	}{
		{"from one that brings none", `kargs = ["x=1", "y=1", "quiet"]`, day2.Rebase{}, " x=1 y=1 quiet"},
		{"one changed, one removed by hand", `kargs = ["x=2", "y=1", "quiet"]`, day2.Rebase{Delete: []string{"quiet"}}, " y=1 x=2"},
		{"what was removed by hand stays so", `kargs = ["quiet", "y=1", "z"]`, day2.Rebase{Append: []string{"z", "x=2"}}, " y=1 x=2 z"},
		{"to one that brings none", "", day2.Rebase{}, " x=2"},
	} {
		var opts []oscontainer.Option
		if step.brings != "" {
			opts = append(opts, withImageKargs(step.brings))
		}
		step.rebase.Image = h.Push(h.NativeImage(append(opts, oscontainer.WithDerived(oscontainer.File("usr/share/step", step.name)))...))
		plan := rebaseTo(t, h, step.rebase)
		got := withoutOSTree(kargs.Split(h.Options()))
		if got != inherited+step.want {
			t.Errorf("%s: options %q, want %q", step.name, got, inherited+step.want)
		}
		if planned := withoutOSTree(plan.Kargs.Final); planned != got {
			t.Errorf("%s: planned %q, got %q", step.name, planned, got)
		}
	}
}

// TestImageKargsStayChanged: on the image that the machine runs, no later change brings back what was changed by hand
// of the image's arguments, or removes what the image before had brought. A repair restores what was last asked for.
func TestImageKargsStayChanged(t *testing.T) {
	h := hostdir.New(t)
	h.Write(settings.Path, []byte("image-kargs=apply\n"))
	push := func(brings string) string {
		return h.Push(h.NativeImage(withImageKargs(brings), oscontainer.WithDerived(oscontainer.File("usr/share/brings", brings))))
	}
	a, b := push(`kargs = ["x=1", "z=1"]`), push(`kargs = ["x=1", "quiet"]`)
	byHand := func(r day2.Rebase) {
		t.Helper()
		r.Machine = newMachine(t, h)
		if changed, err := r.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
			t.Fatalf("changed %v, %v", changed, err)
		}
		h.Boot()
	}
	expect := func(want string) {
		t.Helper()
		if got := withoutOSTree(kargs.Split(h.Options())); !strings.HasSuffix(got, "$ignition_firstboot"+want) {
			t.Errorf("options %q, want %q", got, want)
		}
		expectStatus(t, h)
	}
	byHand(day2.Rebase{Image: a})
	byHand(day2.Rebase{Image: b})
	expect(" x=1 quiet")
	byHand(day2.Rebase{Image: b, Delete: []string{"quiet"}, Append: []string{"z=1"}})
	expect(" x=1 z=1")
	of := func(args string) string { return "  osImageURL: " + b + "\n  kernelArguments: [" + args + "]\n" }
	if changed, notes, err := apply(t, h, of("mc=1")); err != nil || !changed {
		t.Fatalf("changed %v, %v: %s", changed, err, notes)
	}
	expect(" x=1 z=1 mc=1")
	byHand(day2.Rebase{Image: b, Append: []string{"more=1"}})
	expect(" x=1 z=1 mc=1 more=1")

	byHand(day2.Rebase{Image: a, Delete: []string{"more"}})
	if changed, notes, err := apply(t, h, of("mc=1")); err != nil || !changed { // brings quiet
		t.Fatalf("changed %v, %v: %s", changed, err, notes)
	}
	shell(t, h, "sed -i 's/ quiet//' boot/loader/entries/*.conf")
	h.Boot()
	repair := day2.Apply{Machine: newMachine(t, h), Repair: true, When: day2.RebootLater}
	if changed, err := repair.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
		t.Errorf("repair: changed %v, %v", changed, err)
	}
	h.Boot()
	if !strings.Contains(h.Options(), " quiet") {
		t.Errorf("after the repair: options %s", h.Options())
	}
	expectStatus(t, h)
}

// TestImageKargsNamed: if they are left out, the plan notes what applying them would change.
func TestImageKargsNamed(t *testing.T) {
	h := hostdir.New(t)
	for _, step := range []struct{ brings, want string }{
		{`kargs = ["x=1", "rw"]`, "left out: x=1; --image-kargs=apply adds x=1"},
		{`kargs = ["x=1", "rw"] # again`, "left out: x=1; --image-kargs=apply changes nothing, because the running image has them too: --append-karg adds them"},
		{`kargs = ["x=1", "rw", "y"]`, "left out: x=1 y; --image-kargs=apply adds y"},
		{`kargs = []`, "that the running image contains (/usr/lib/bootc/kargs.d) stay; --image-kargs=apply removes rw"},
		{`kargs = ["rw"]`, ""},
		{`kargs = ["rw"`, "warning: cannot use the kernel arguments that the image brings"},
	} {
		image := h.Push(h.NativeImage(withImageKargs(step.brings)))
		pull(t, h, image)
		r := day2.Rebase{Machine: newMachine(t, h), Image: image}
		plan, err := r.Plan(t.Context(), day2.RunOptions{})
		if notes := strings.Join(plan.Notes, "\n"); err != nil || !strings.Contains(notes, step.want) || (step.want == "") != (notes == "") || plan.ImageKargs.Choice != "print" || len(plan.Kargs.Appended) > 0 {
			t.Errorf("%s: notes %q, want %q; %+v, %v", step.brings, notes, step.want, plan, err)
		}
		if _, err := r.Run(t.Context(), day2.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		h.Boot()
	}
	if !strings.Contains(h.Options(), " rw ") || strings.Contains(h.Options(), "x=1") {
		t.Errorf("options %s", h.Options())
	}
}

// TestImageKargsUnified: the checks that a plan has passed before its image was known are made again for the arguments that
// the image brings.
func TestImageKargsUnified(t *testing.T) {
	h := hostdir.New(t)
	h.Write("/sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", []byte("x"))
	image := h.Push(h.NativeImage(withImageKargs(`kargs = ["x=1"]`)))
	_, err := rebased(t, h, day2.Rebase{Image: image})
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "cannot change the kernel arguments: this machine was started from a unified kernel image") {
		t.Errorf("error %v", err)
	}
	if len(h.Ostree.Calls) != 0 {
		t.Errorf("calls %v", h.Ostree.Calls)
	}
	r := day2.Rebase{Machine: newMachine(t, h), Image: image} // without the arguments
	if changed, err := r.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
		t.Errorf("changed %v, %v", changed, err)
	}
}

// TestImageKargsRefused: arguments that an image must not bring are refused by name before
// anything is deployed. If they are left out, they are no obstacle.
func TestImageKargsRefused(t *testing.T) {
	for _, c := range []struct {
		name, brings string
		kind         fault.Kind
		want         string
	}{
		{"a key that is not known", "kargs = []\nmatch-platforms = []", fault.BadInput, "10-test.toml: there is no key match-platforms"},
		{"not by policy", `kargs = ["init=/bin/sh"]`, fault.Refused, `"init=/bin/sh": keeps the machine from starting`},
		{"another root", `kargs = ["root=/dev/vdb"]`, fault.Refused, `"root=/dev/vdb": decides which file system is booted`},
		{"too long", `kargs = ["x=` + strings.Repeat("x", kargs.MaxLength) + `"]`, fault.BadInput, "more than the 2047 that a kernel takes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 2)
			h := newHost(t)
			serve(t, h, h.NativeImage(withImageKargs(c.brings)))
			_, err := bootWith(t, h, "ostree", applying)
			if fault.KindOf(err) != c.kind || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if h.Reboots != 0 || len(h.Ostree.Calls) != 0 {
				t.Errorf("%d reboots, calls %v", h.Reboots, h.Ostree.Calls)
			}
			if notes, err := bootWith(t, h, "ostree"); err != nil {
				t.Fatal(err, notes)
			}
			h.Boot()
			expectNew(t, h)
		})
	}
	// The machine's own policy can allow an argument; one that only weakens it is a warning.
	h := newHost(t)
	h.Write(kargs.PolicyPath, []byte("allow init\n"))
	serve(t, h, h.NativeImage(withImageKargs(`kargs = ["init=/bin/sh", "mitigations=off"]`)))
	notes, err := bootWith(t, h, "ostree", applying)
	if err != nil || !strings.Contains(notes, "warning: kernel argument mitigations=off of the image switches every") {
		t.Errorf("notes %s, %v", notes, err)
	}
}

// TestImageKargsAndCPUs: kernel arguments of an image are checked against the CPU
// partitioning, like those of the MachineConfig.
func TestImageKargsAndCPUs(t *testing.T) {
	h := newHost(t)
	serve(t, h, h.NativeImage(withImageKargs(`kargs = ["isolcpus=0-1"]`)))
	notes, err := bootWith(t, h, "ostree", applying)
	if err != nil || !strings.Contains(notes, "isolcpus") || !strings.Contains(notes, "warning: ") {
		t.Errorf("notes %s, %v", notes, err)
	}
}
