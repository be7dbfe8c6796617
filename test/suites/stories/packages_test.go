package stories_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/rpmostree"
)

// rpms are a realtime kernel and an extension.
var rpms = []oscontainer.RPM{
	{Name: "kernel-rt-core", Version: "6.1", Files: map[string][]byte{
		"/usr/lib/modules/6.1+rt/vmlinuz": []byte("realtime kernel"), "/usr/lib/modules/6.1+rt/initramfs.img": []byte("its initramfs"),
	}},
	{Name: "kernel-rt-modules", Version: "6.1", Files: map[string][]byte{"/usr/lib/modules/6.1+rt/a.ko": []byte("a")}},
	{Name: "kernel-rt-modules-extra", Version: "6.1", Files: map[string][]byte{"/usr/lib/modules/6.1+rt/b.ko": []byte("b")}},
	{Name: "usbguard", Version: "1.0", Files: map[string][]byte{"/usr/bin/usbguard": []byte("usbguard")}},
}

// extensionsHost returns a host with rpm-ostree, and the reference of an extensions image in its
// registry.
func extensionsHost(t *testing.T, packages []oscontainer.RPM) (h *hostdir.Host, image string) {
	t.Helper()
	need.Program(t, "createrepo_c")
	h = newHost(t)
	h.InstallRpmOstree(rpmostree.Control{})
	img, err := oscontainer.Extensions(packages, oscontainer.WithWorkDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	return h, h.Push(img)
}

// askPackages asks for the next image with a kernel and extensions.
func askPackages(h *hostdir.Host, image, kernel, extensions string) {
	h.Write(firstboot.EncapsulatedPath, fmt.Appendf(nil,
		`{"spec":{"osImageURL":%q,"baseOSExtensionsContainerImage":%q,"kernelType":%q,"extensions":[%s],"kernelArguments":["nosmt"]}}`, h.Image, image, kernel, extensions))
}

// bootAuto is boot with the engine "auto".
func bootAuto(t *testing.T, h *hostdir.Host) error {
	t.Helper()
	_, err := bootWith(t, h, "auto")
	return err
}

// expectPackages checks that the running system has only the given kernel, and that no temporary
// repository is left.
func expectPackages(t *testing.T, h *hostdir.Host, kernel string) {
	t.Helper()
	kernels, err := filepath.Glob(h.Path("/usr/lib/modules/*/vmlinuz"))
	if err != nil || len(kernels) != 1 || filepath.Base(filepath.Dir(kernels[0])) != kernel {
		t.Errorf("kernels %q, want %s: %v", kernels, kernel, err)
	}
	for _, left := range []string{"/var/cache/pivot", "/etc/yum.repos.d/pivot-extensions.repo"} {
		if _, err := os.Lstat(h.Path(left)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", left, err)
		}
	}
}

// TestWithPackages (P80) is a first boot with a realtime kernel and an extension: one reboot, one
// call of rpm-ostree that changes anything. The first boot is closed and verified, and the
// next MachineConfig takes the packages away again.
func TestWithPackages(t *testing.T) {
	h, image := extensionsHost(t, rpms)
	askPackages(h, image, "realtime", `"usbguard"`)
	if err := bootAuto(t, h); err != nil {
		t.Fatal(err)
	}
	expectOld(t, h)
	calls, err := rpmostree.Calls(h.Root)
	if err != nil {
		t.Fatal(err)
	}
	changing := slices.DeleteFunc(calls, func(call string) bool { return strings.HasPrefix(call, "status") || strings.HasPrefix(call, "db ") })
	if len(changing) != 1 || h.Reboots != 1 {
		t.Errorf("calls %q, %d reboots", changing, h.Reboots)
	}
	h.Boot()
	if err := bootAuto(t, h); err != nil {
		t.Fatal(err)
	}
	expectClosed(t, h)
	expectPackages(t, h, "6.1+rt")
	if h.Version() != "B.2" || !strings.HasSuffix(h.Options(), " nosmt") || string(h.Read("/usr/bin/usbguard")) != "usbguard" || h.Reboots != 1 {
		t.Errorf("version %s, options %s, %d reboots", h.Version(), h.Options(), h.Reboots)
	}
	m := newMachine(t, h)
	if drift, err := m.Verify(t.Context()); err != nil || len(drift) > 0 {
		t.Errorf("drift %q, %v", drift, err)
	}
	if s, err := m.Status(t.Context()); err != nil || s.Phase != pivot.PhaseDone {
		t.Errorf("status %+v, %v", s, err)
	}

	// The next MachineConfig has the default kernel, and no extension.
	record := fmt.Sprintf(`{"spec":{"osImageURL":%q,"kernelArguments":["nosmt"]}}`, h.Image)
	m = newMachine(t, h)
	if err := m.UseEngine("auto"); err != nil {
		t.Fatal(err)
	}
	if changed, err := (&day2.Apply{Machine: m, Config: day2.Config{File: "new.json", Data: []byte(record)}}).Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
		t.Fatal(changed, err)
	}
	h.Boot()
	expectPackages(t, h, "6.1")
	if _, err := os.Stat(h.Path("/usr/bin/usbguard")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the extension is still there: %v", err)
	}
}

// TestPackagesEarly (P80): the initramfs imports the image and leaves the packages to the
// started system, which does the one reboot.
func TestPackagesEarly(t *testing.T) {
	h, image := extensionsHost(t, rpms)
	askPackages(h, image, "realtime", "")
	notes, err := bootEarly(t, h, &place{})
	if err != nil || !strings.Contains(notes, "stepping aside for the started system: cannot change packages from here: install kernel-rt-core") {
		t.Fatalf("%v\n%s", err, notes)
	}
	if h.Reboots != 0 || !slices.ContainsFunc(h.Refs(), func(ref string) bool { return strings.HasPrefix(ref, "pivot/") }) {
		t.Errorf("%d reboots, refs %q", h.Reboots, h.Refs())
	}
	if err := bootAuto(t, h); err != nil {
		t.Fatal(err)
	}
	h.Boot()
	if err := bootAuto(t, h); err != nil {
		t.Fatal(err)
	}
	expectClosed(t, h)
	expectPackages(t, h, "6.1+rt")
	if h.Reboots != 1 {
		t.Errorf("%d reboots", h.Reboots)
	}
}

// TestPackagesRefused (P80): packages that cannot be installed are refused by name, before the
// reboot, and leave nothing behind.
func TestPackagesRefused(t *testing.T) {
	const rejects = `{"default":[{"type":"reject"}],"transports":{"docker":{"%s":[{"type":"insecureAcceptAnything"}]}}}`
	for _, c := range []struct {
		name, want string
		kind       fault.Kind
		prepare    func(h *hostdir.Host, image string)
		packages   []oscontainer.RPM
	}{
		{"without the package", "cannot install kernel-rt-modules, kernel-rt-modules-extra: ", fault.Refused, nil, rpms[:1]},
		{"without a repository", "cannot read the repository of packages", fault.BadInput,
			func(h *hostdir.Host, _ string) { askPackages(h, h.Image, "realtime", "") }, rpms},
		{"not accepted by the policy", "rejected by policy", fault.Refused,
			func(h *hostdir.Host, _ string) {
				h.Write("/etc/containers/policy.json", fmt.Appendf(nil, rejects, h.Registry.Host()+"/os/content"))
			}, rpms},
		{"no such image", "manifest unknown", fault.Refused, func(h *hostdir.Host, image string) {
			askPackages(h, image[:len(image)-4]+"0000", "realtime", "")
		}, rpms},
		{"without rpm-ostree", "cannot change packages by ostree alone (install kernel-rt-core", fault.Refused, func(h *hostdir.Host, _ string) { h.RemoveRpmOstree() }, rpms},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 6)
			h, image := extensionsHost(t, c.packages)
			askPackages(h, image, "realtime", "")
			if c.prepare != nil {
				c.prepare(h, image)
			}
			err := bootAuto(t, h)
			if err == nil || fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v (%d)", err, fault.KindOf(err))
			}
			expectOld(t, h)
			expectPackages(t, h, "6.1")
			if staged, err := h.Sysroot().Staged(); err != nil || staged != nil || h.Reboots != 0 {
				t.Errorf("staged %+v, %v, %d reboots", staged, err, h.Reboots)
			}
		})
	}
}

// TestPackagesNoRoom (P80): a lack of space is found before anything is pulled.
func TestPackagesNoRoom(t *testing.T) {
	h, image := extensionsHost(t, rpms)
	askPackages(h, image, "realtime", "")
	h.Free = func(string) (int64, error) { return 10, nil }
	if err := bootAuto(t, h); fault.KindOf(err) != fault.CannotWrite || !strings.Contains(err.Error(), "there are 10 B free") || fault.HintOf(err) == "" {
		t.Errorf("error %v", err)
	}
	expectOld(t, h)
}

// TestPackagesByHand (P80): flags of a pivot by hand ask for the same, and what is installed
// already is no change.
func TestPackagesByHand(t *testing.T) {
	h, image := extensionsHost(t, rpms)
	rebase := func(r day2.Rebase) bool {
		t.Helper()
		r.Machine = newMachine(t, h)
		if err := r.UseEngine("auto"); err != nil {
			t.Fatal(err)
		}
		changed, err := r.Run(t.Context(), day2.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		h.Boot()
		return changed
	}
	realtime := day2.Rebase{KernelType: "realtime", Extensions: []string{"usbguard"}, ExtensionsImage: image}
	if !rebase(realtime) || rebase(realtime) {
		t.Error("the first call changes the machine, the second does not")
	}
	expectPackages(t, h, "6.1+rt")
	if !rebase(day2.Rebase{KernelType: "default"}) {
		t.Error("it has to change the kernel")
	}
	expectPackages(t, h, "6.1")
	if string(h.Read("/usr/bin/usbguard")) != "usbguard" {
		t.Error("the extension is gone")
	}
	wrong := day2.Rebase{Machine: newMachine(t, h), KernelType: "64k-pages", Extensions: []string{"wasm", "kernel-devel"}}
	if _, err := wrong.Run(t.Context(), day2.RunOptions{}); fault.KindOf(err) != fault.Usage || !strings.Contains(err.Error(), `no extension "wasm"`) || !strings.Contains(err.Error(), "arm64 only") {
		t.Errorf("error %v", err)
	}
}

// TestLayeredWithoutRepository: rpm-ostree resolves what is layered again for another image.
// Without a repository that is enabled where rpm-ostree looks, and without an extensions image,
// this is refused before anything is pulled. With either of them the image comes.
func TestLayeredWithoutRepository(t *testing.T) {
	const listed = "[main]\ngpgcheck=0\n[site]\nname=Site\nbaseurl=file:///var/cache/site\n"
	for _, c := range []struct {
		name, repo, file string
		origin           func(string) string
		again, pipe      bool // the extensions image is given again; the file is a pipe
		allowed          bool
		why, hint        string // "": no repository
	}{
		{name: "none"},
		{name: "disabled", file: "site.repo", repo: listed + "enabled = False\n"},
		{name: "not a .repo file", file: "site.repo.off", repo: listed},
		{name: "no section of a repository", file: "site.repo", repo: "[main]\nenabled=1\n"},
		{name: "left by a run that was killed", file: "pivot-extensions.repo", repo: strings.ReplaceAll(listed, "[site]", "[pivot-extensions]")},
		{name: "a pipe", file: "site.repo", pipe: true, why: "it is not a regular file", hint: "remove it"},
		{name: "one of two enabled", file: "site.repo", repo: "[off]\nbaseurl=file:///srv/off\nenabled=0\n" + listed + "gpgcheck=0\n", allowed: true},
		{name: "extensions image given", again: true, allowed: true},
		{name: "a local package only", allowed: true, origin: func(text string) string {
			return strings.Replace(text, "requested=usbguard;", "requested-local=0123:usbguard-1.0-1.x86_64;", 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 6)
			h, image := extensionsHost(t, rpms)
			rebase := func(r day2.Rebase) error {
				r.Machine = newMachine(t, h)
				if err := r.UseEngine("auto"); err != nil {
					t.Fatal(err)
				}
				_, err := r.Run(t.Context(), day2.RunOptions{})
				return err
			}
			if err := rebase(day2.Rebase{Extensions: []string{"usbguard"}, ExtensionsImage: image}); err != nil {
				t.Fatal(err)
			}
			h.Boot()
			if c.origin != nil {
				booted, err := h.Sysroot().Booted()
				if err != nil {
					t.Fatal(err)
				}
				h.SetOrigin(c.origin(string(booted.Origin.Bytes())))
			}
			if c.pipe {
				must(t, unix.Mkfifo(h.Path("/etc/yum.repos.d/"+c.file), 0o644))
			} else if c.file != "" {
				h.Write("/etc/yum.repos.d/"+c.file, []byte(c.repo))
				h.Write("/var/cache/site/repodata/repomd.xml", nil)
			}
			journal, refs := string(h.Read(pivot.StateDir+"/journal.json")), h.Refs()
			next := day2.Rebase{Image: h.Image}
			if c.again {
				next.ExtensionsImage = image
			}
			err := rebase(next)
			if c.allowed {
				if err != nil {
					t.Fatal(err)
				}
				if h.Boot(); h.Version() != "B.2" {
					t.Errorf("version %s", h.Version())
				}
				return
			}
			if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), cmp.Or(c.why, "usbguard")) || !strings.Contains(fault.HintOf(err), cmp.Or(c.hint, "extensions-image")) {
				t.Errorf("error %v, hint %s", err, fault.HintOf(err))
			}
			if string(h.Read(pivot.StateDir+"/journal.json")) != journal || !slices.Equal(h.Refs(), refs) {
				t.Errorf("the journal or the refs changed: %q", h.Refs())
			}
		})
	}
}

// TestLayeredDropped (P80): for another image without the extension, in the same MachineConfig, rpm-ostree does
// not look for the extension any more, so no repository is needed. Where its daemon cannot be asked to
// do both at once, this is refused before anything is pulled.
func TestLayeredDropped(t *testing.T) {
	for _, noBus := range []bool{false, true} {
		h, image := extensionsHost(t, rpms)
		h.InstallRpmOstree(rpmostree.Control{NoBus: noBus})
		if err := os.Remove(h.Path(firstboot.EncapsulatedPath)); err != nil {
			t.Fatal(err)
		}
		apply := func(spec string) error {
			m := newMachine(t, h)
			if err := m.UseEngine("auto"); err != nil {
				t.Fatal(err)
			}
			_, err := (&day2.Apply{Machine: m, Config: day2.Config{File: "new.json", Data: []byte(spec)}}).Run(t.Context(), day2.RunOptions{})
			return err
		}
		if err := apply(fmt.Sprintf(`{"spec":{"baseOSExtensionsContainerImage":%q,"kernelType":"realtime","extensions":["usbguard"]}}`, image)); err != nil {
			t.Fatal(err)
		}
		h.Boot()
		refs := h.Refs()
		err := apply(fmt.Sprintf(`{"spec":{"osImageURL":%q}}`, h.Image))
		if noBus {
			if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "usbguard") || !slices.Equal(h.Refs(), refs) {
				t.Errorf("error %v, refs %q", err, h.Refs())
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		assembled, err := rpmostree.Assemblies(h.Root)
		if err != nil || len(assembled) != 0 {
			t.Errorf("assembled %q, %v", assembled, err)
		}
		h.Boot()
		expectPackages(t, h, "6.1")
		if _, err := os.Stat(h.Path("/usr/bin/usbguard")); !errors.Is(err, fs.ErrNotExist) || h.Version() != "B.2" {
			t.Errorf("version %s, the extension: %v", h.Version(), err)
		}
	}
}
