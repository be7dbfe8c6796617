package rpmostree_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	standin "machine-pivot/test/worlds/rpmostree"
)

// layersOf are what an origin can change of an image. rpm-ostree takes either kind of initramfs.
var layersOf = map[string]string{
	"packages": "[packages]\nrequested=usbguard;\nrequested-local=1111:hello-1-1.x86_64;\nrequested-local-fileoverride=3333:world-1-1.x86_64;\n" +
		"[overrides]\nremove=kernel-modules;\nreplace-local=2222:kernel-2-1.x86_64;\nreplace=repo=site,kernel;\n" +
		"[rpmostree]\nregenerate-initramfs=true\ninitramfs-args=-I;/etc/keys;\n",
	"files in an initramfs": "[rpmostree]\ninitramfs-etc=/etc/crypttab;\n",
}

// withLayers gives the running system, on which usbguard is layered, an origin that changes the image.
func withLayers(t *testing.T, h *hostdir.Host, layers string) {
	t.Helper()
	booted, err := h.Sysroot().Booted()
	must(t, err)
	h.SetOrigin("[origin]\nbaserefspec=" + booted.Base.String() + "\n" + layers)
	h.Write("/etc/crypttab", []byte("luks-1 UUID=1\n"))
}

// notFirst are the ways in which another deployment than the booted one comes first in boot order.
var notFirst = map[string]func(t *testing.T, h *hostdir.Host){
	"a queued rollback": func(t *testing.T, h *hostdir.Host) { setDefault(t, h, "1") },
	"the old entry, from the menu": func(t *testing.T, h *hostdir.Host) {
		setDefault(t, h, "1")
		h.BootEntry(1)
	},
	"a commit that waits for its reboot": func(t *testing.T, h *hostdir.Host) {
		booted, err := h.Sysroot().Booted()
		must(t, err)
		_, err = h.Run(t.Context(), "ostree", "admin", "deploy", "--os=os", "--karg-none", "--karg-append=root=LABEL=root", "--karg-append=pending", booted.Base.String())
		must(t, err)
	},
	"another system": func(t *testing.T, h *hostdir.Host) {
		booted, err := h.Sysroot().Booted()
		must(t, err)
		realOstree(t, "os-init", "--sysroot="+h.Physical(), "other")
		realOstree(t, "deploy", "--sysroot="+h.Physical(), "--os=other", "--karg=root=LABEL=other", booted.Base.String())
	},
}

// realOstree runs "ostree admin", which nothing is booted for.
func realOstree(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("ostree", append([]string{"admin"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func setDefault(t *testing.T, h *hostdir.Host, index string) {
	t.Helper()
	_, err := h.Run(t.Context(), "ostree", "admin", "set-default", index)
	must(t, err)
}

// TestStartsFromTheBooted: rpm-ostree starts from the first deployment in boot order. Whatever that is, another image keeps all
// that changes the image of the running system, and nothing of the other deployment's. Nothing is unlocked in between.
func TestStartsFromTheBooted(t *testing.T) {
	for way, first := range notFirst {
		for what, layers := range layersOf {
			version := map[string]string{"packages": "2024.5"}[what] // it loses the lock of what it replaces
			t.Run(way+", "+what, func(t *testing.T) {
				sample.Short(t, 4)
				t.Parallel()
				h, _ := layeredHost(t, standin.Control{Version: version}, wishes("", "usbguard"))
				withLayers(t, h, layers)
				first(t, h)
				booted, err := h.Sysroot().Booted()
				must(t, err)
				entries := entriesOf(t, h)
				h.PutIntoNext(map[string]string{"/usr/share/another": "B"})
				var notes string
				e, r := engine(h, false, &notes), request(t, h)
				must(t, e.Prepare(t.Context(), r))
				if got := entriesOf(t, h); got != entries {
					t.Errorf("boot entries before the commit: %s, were %s", got, entries)
				}
				must(t, e.Commit(t.Context(), r))
				wantLayers(t, h, booted)
			})
		}
	}
}

// wantLayers checks that the next boot changes its image as a deployment does, and has the arguments of the request.
func wantLayers(t *testing.T, h *hostdir.Host, of ostree.Deployment) {
	t.Helper()
	next, err := h.Sysroot().Default()
	must(t, err)
	if got, want := fmt.Sprint(next.Origin.Layers()), fmt.Sprint(of.Origin.Layers()); got != want {
		t.Errorf("the next boot has %s, the running system %s", got, want)
	}
	if of.Origin.HasInitramfsFiles() != (len(next.Entry.Initrds) == 2) {
		t.Errorf("initramfs files %q", next.Entry.Initrds)
	}
	if strings.Contains(next.Entry.Options, "pending") || !strings.HasSuffix(kargsOf(next), " nosmt") {
		t.Errorf("options %q", next.Entry.Options)
	}
}

// entriesOf returns the boot entries.
func entriesOf(t *testing.T, h *hostdir.Host) (text string) {
	t.Helper()
	all, err := h.Sysroot().Deployments()
	must(t, err)
	for _, d := range all {
		text += fmt.Sprintln(d.ID(), d.Entry.Options, d.Entry.Initrds)
	}
	return text
}

// kargsOf returns the arguments of a deployment without the one that names it.
func kargsOf(d ostree.Deployment) string {
	arguments := strings.Fields(d.Entry.Options)
	kept := arguments[:0]
	for _, a := range arguments {
		if !strings.HasPrefix(a, "ostree=") {
			kept = append(kept, a)
		}
	}
	return strings.Join(kept, " ")
}

// layeredHost returns a host that runs a system with packages.
func layeredHost(t *testing.T, c standin.Control, had pivot.Packages) (*hostdir.Host, *repository) {
	t.Helper()
	h := hostdir.New(t)
	h.InstallRpmOstree(c)
	h.Ostree.Version = hostdir.LockInState
	h.Ostree.Programs = map[string]string{"systemctl": ""}
	h.Ostree.Fail = func(int, bool) error { return checkLocked(h) }
	repo := newRepository(t, h)
	move(t, h, again(t, h, had, repo))
	h.Boot()
	// as rpm-ostree protects the base of a layered deployment
	booted, err := h.Sysroot().Booted()
	must(t, err)
	_, err = h.Run(t.Context(), "ostree", "refs", "--repo="+h.Sysroot().RepoPath(), "--create=rpmostree/base/0", booted.Base.String())
	must(t, err)
	h.Write("/etc/yum.repos.d/all.repo", []byte("[all]\nbaseurl=file://"+repo.dir+"\ngpgcheck=0\n"))
	return h, repo
}

// TestSecondChangeOfPackages: before the reboot of a change, another one with other packages starts from the running system,
// too: from each set of packages, over a pending one, to each.
func TestSecondChangeOfPackages(t *testing.T) {
	sets := map[string]pivot.Packages{"default": wishes(""), "usbguard": wishes("", "usbguard"), "rt": wishes("rt"), "64k+usbguard": wishes("64k", "usbguard")}
	kernels := map[string]string{"default": "6.1", "usbguard": "6.1", "rt": "6.1+rt", "64k+usbguard": "6.1+64k"}
	for from, over := range map[string]string{"usbguard": "rt", "rt": "default", "64k+usbguard": "usbguard"} {
		t.Run(from+" over "+over, func(t *testing.T) {
			sample.Short(t, 2)
			t.Parallel()
			h, repo := layeredHost(t, standin.Control{}, sets[from])
			commit := func(name string) {
				h.PutIntoNext(map[string]string{"/usr/share/another": name})
				var notes string
				e, r := engine(h, false, &notes), requestOf(t, h, sets[name], repo)
				must(t, e.Prepare(t.Context(), r))
				must(t, e.Commit(t.Context(), r))
			}
			commit(over)
			for to := range sets {
				commit(to)
				next, err := h.Sysroot().Default()
				must(t, err)
				if !strings.HasSuffix(next.Entry.Linux, "/vmlinuz-"+kernels[to]) || next.Origin.Layered() == (to == "default") {
					t.Errorf("to %s: kernel %s, %s", to, next.Entry.Linux, next.Origin.Bytes())
				}
			}
		})
	}
}

// TestForeignPackages: before the reboot of a change of packages, another image without a word about packages keeps those of
// the running system, and not those of the change.
func TestForeignPackages(t *testing.T) {
	h, repo := layeredHost(t, standin.Control{}, wishes("", "usbguard"))
	move(t, h, again(t, h, wishes("rt", "usbguard"), repo))
	h.PutIntoNext(map[string]string{"/usr/share/another": "B"})
	move(t, h, requestOf(t, h, pivot.Packages{}, repo))
	h.Boot()
	wantKernel(t, h, "6.1")
	booted, err := h.Sysroot().Booted()
	if err != nil || fmt.Sprint(booted.Origin.Layers()) != "map[packages/requested:[usbguard]]" {
		t.Errorf("origin %s, %v", booted.Origin.Bytes(), err)
	}
}

// TestStagedOrigin: what rpm-ostree has staged is not committed if it lacks anything that changes the image of the running
// system, or has more, except for what is asked for.
func TestStagedOrigin(t *testing.T) {
	h, repo := layeredHost(t, standin.Control{}, wishes("", "usbguard"))
	withLayers(t, h, layersOf["packages"])
	h.PutIntoNext(map[string]string{"/usr/share/another": "B"})
	var notes string
	e, r := engine(h, false, &notes), requestOf(t, h, pivot.Packages{}, repo)
	must(t, e.Prepare(t.Context(), r))
	entries := entriesOf(t, h)
	staged, err := h.Sysroot().Staged()
	must(t, err)
	d, err := h.Sysroot().Deployment(staged.Target)
	must(t, err)
	text := string(d.Origin.Bytes())
	for _, c := range []struct{ from, to, want string }{
		{"usbguard;", "strace;usbguard;", "packages/requested: it has strace"},
		{"usbguard;", "", "packages/requested: it lacks usbguard"},
		{"1111:hello-1", "1111:hello-2", "requested-local: it lacks 1111:hello-1-1.x86_64, has 1111:hello-2-1.x86_64"},
		{"3333:world-1", "3333:other-1", "requested-local-fileoverride: it lacks 3333:world-1-1.x86_64"},
		{"kernel-modules;", "", "overrides/remove: it lacks kernel-modules"},
		{"2222:kernel-2", "2222:kernel-3", "overrides/replace-local: it lacks 2222:kernel-2-1.x86_64"},
		{"replace=repo=site,kernel;", "", "overrides/replace: it lacks repo=site,kernel"},
		{"regenerate-initramfs=true", "", "rpmostree/regenerate-initramfs: it lacks true"},
		{"-I;/etc/keys;", "-I;/etc/keys;-v;", "rpmostree/initramfs-args: it has -v"},
		{"[rpmostree]\n", "[rpmostree]\ninitramfs-etc=/etc/crypttab;\n", "rpmostree/initramfs-etc: it has /etc/crypttab"},
	} {
		must(t, os.WriteFile(d.Path+".origin", []byte(strings.Replace(text, c.from, c.to, 1)), 0o644))
		err = e.Commit(t.Context(), r)
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" || entriesOf(t, h) != entries {
			t.Errorf("error %v, hint %q, want %s; entries %s", err, fault.HintOf(err), c.want, entriesOf(t, h))
		}
	}
	must(t, os.WriteFile(d.Path+".origin", []byte(text), 0o644))
	must(t, e.Commit(t.Context(), r))
}

// TestPackageMessagesAreNotFinal: whatever rpm-ostree says about the names of packages in the one request to its daemon, calls of
// the command line one after the other are tried, too. What they cannot change is final: packages that do not fit, or that
// no repository has, a system in which no program runs, a person's word.
func TestPackageMessagesAreNotFinal(t *testing.T) {
	h, repo := layeredHost(t, standin.Control{}, wishes("rt"))
	for message, final := range map[string]bool{
		"Package/capability 'kernel-rt-core' is not currently requested":                                           false,
		"Package/capability 'usbguard' is already requested":                                                       false,
		"No overrides for package 'kernel-core'":                                                                   false,
		"Override already exists for package 'kernel-core'":                                                        false,
		`"usbguard" is already provided by: usbguard-1.0-1.x86_64. Use --allow-inactive to explicitly require it.`: false,
		`Package "kernel-modules-core" not found`:                                                                  false,
		`Multiple packages match "kernel-core"`:                                                                    false,
		"Packages not found: usbguard":                                                                             true,
		"Could not depsolve transaction; 1 problem detected":                                                       true,
		"Cannot request 'kernel-rt-core' provided by removed package 'kernel-core-6.1-1.x86_64'":                   false,
		"No enabled repositories":                                                                                  true,
		"Sanity-checking final rootfs: bwrap(/usr/bin/true): Child process exited with code 1":                     true,
		"Operation was cancelled":                                                                                  true,
	} {
		h.InstallRpmOstree(standin.Control{Faults: []standin.Fault{{Verb: "UpdateDeployment", Nth: 1, At: "start", Do: "fail", Message: message}}})
		var notes string
		e, r := engine(h, false, &notes), requestOf(t, h, wishes("", "usbguard"), repo)
		err := e.Prepare(t.Context(), r)
		if final != (err != nil) || final && !strings.Contains(err.Error(), message) || !final && !strings.Contains(notes, message) {
			t.Errorf("%s: error %v\n%s", message, err, notes)
		}
		must(t, e.Discard(t.Context()))
	}
}

// TestKilledTransactions: a transaction is tried again if it ended because the daemon or its child was stopped or
// killed, but not if its scriptlet failed by itself.
func TestKilledTransactions(t *testing.T) {
	h, repo := layeredHost(t, standin.Control{}, wishes("rt"))
	for message, again := range map[string]bool{
		"Running %post for kernel-rt-core: bwrap(/bin/sh): Child process killed by signal 15":               true,
		"Running %post for kernel-rt-core: bwrap(/bin/sh): Child process killed by signal 9":                true,
		"Generating initramfs: bwrap(/usr/bin/dracut): Child process exited with code 137":                  true,
		"Generating initramfs: bwrap(/usr/bin/dracut): Child process exited with code 143":                  true,
		"Running depmod: Subprocess failed: ExitStatus(unix_wait_status(9))":                                true,
		"Running depmod: Subprocess failed: ExitStatus(unix_wait_status(35072))":                            true,
		"GDBus.Error:org.freedesktop.DBus.Error.NoReply: Message recipient disconnected from message bus":   true,
		"GDBus.Error:org.freedesktop.DBus.Error.Disconnected: Connection is closed":                         true,
		"GDBus.Error:org.freedesktop.DBus.Error.Spawn.ChildSignaled: Process rpm-ostreed received signal 9": true,
		"Running %post for kernel-rt-core: bwrap(/bin/sh): Child process killed by signal 1":                false,
		"Running %post for kernel-rt-core: bwrap(/bin/sh): Child process exited with code 1":                false,
		"Running %post for kernel-rt-core: bwrap(/bin/sh): Child process exited with code 13":               false,
	} {
		for verb, wanted := range map[string]pivot.Packages{"UpdateDeployment": wishes("", "usbguard"), "rebase": {}} {
			h.InstallRpmOstree(standin.Control{Faults: []standin.Fault{{Verb: verb, Nth: 1, At: "start", Do: "fail", Message: message}}})
			var notes string
			e, r := engine(h, false, &notes), requestOf(t, h, wanted, repo)
			err := e.Prepare(t.Context(), r)
			all, cerr := standin.Calls(h.Root)
			must(t, cerr)
			if got, want := strings.Count(strings.Join(all, ""), verb), map[bool]int{true: 2, false: 1}[again]; got != want || (err == nil) != again {
				t.Errorf("%s: %d calls of %s, want %d: %v\n%s", message, got, verb, want, err, notes)
			}
			must(t, e.Discard(t.Context()))
		}
	}
}
