package rpmostree_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/ostreetree"
	standin "machine-pivot/test/worlds/rpmostree"
)

// TestDirect: one call makes and commits the deployment, and does not prune the repository. Nothing is staged, and the
// running system's /etc does not change.
func TestDirect(t *testing.T) {
	h := hostdir.New(t)
	repo := "--repo=" + filepath.Join(h.Physical(), "ostree/repo")
	unreferenced, err := ostreetree.Ostree("commit", repo, "--orphan", "--tree=dir="+t.TempDir())
	must(t, err)
	e := &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}}
	r := request(t, h)
	must(t, errors.Join(e.Preflight(t.Context(), pivot.Plan{}), e.Prepare(t.Context(), r)))
	if len(h.Ostree.Calls) != 0 {
		t.Errorf("it called %q before the commit", h.Ostree.Calls)
	}
	must(t, e.Commit(t.Context(), r))
	if h.Read("/etc/new") != nil || !slices.Equal(h.Ostree.Calls, []string{"deploy"}) {
		t.Errorf("calls %q, and the old system has %q", h.Ostree.Calls, h.Read("/etc/new"))
	}
	if _, err := ostreetree.Ostree("show", repo, strings.TrimSpace(unreferenced)); err != nil {
		t.Errorf("the repository was pruned: %v", err)
	}
	h.Boot()
	booted, err := h.Sysroot().Booted()
	if err != nil || booted.Origin.ContainerImageReference() != container || !strings.HasSuffix(h.Options(), " nosmt") || string(h.Read("/etc/new")) != "x" {
		t.Errorf("origin %s, options %s, %v", booted.Origin.Bytes(), h.Options(), err)
	}
}

// TestDirectLabels: if the new system will have SELinux, its files, and those that the initramfs
// wrote, are labelled before it becomes the default. A deployment that cannot be labelled is
// removed, and the old one stays the default.
func TestDirectLabels(t *testing.T) {
	const etc, state, boot = "system_u:object_r:etc_t:s0", "system_u:object_r:var_lib_t:s0", "system_u:object_r:boot_t:s0"
	contexts := []string{"/etc(/.*)? " + etc, "/etc/new -- system_u:object_r:new_t:s0", "/var/lib(/.*)? " + state, "/boot(/.*)? " + boot}
	prepared := func(t *testing.T) (*hostdir.Host, *rpmostree.Direct, pivot.Spec) {
		h := hostdir.New(t)
		h.Policy(contexts...)
		h.Ostree.Version = hostdir.LockInState
		h.Write("/etc/dir/file", []byte("made by Ignition"))
		h.Write("/var/lib/pivot/journal.json", []byte("{}"))
		return h, &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}, State: []string{pivot.StateDir}}, request(t, h)
	}
	t.Run("labels", func(t *testing.T) {
		sample.Short(t, 4)
		h, e, r := prepared(t)
		const usr = "system_u:object_r:usr_t:s0"
		must(t, hostfiles.SetLabel(filepath.Join(h.Physical(), "ostree"), usr))
		must(t, e.Prepare(t.Context(), r))
		checked := false
		h.Ostree.Fail = func(call int, after bool) error {
			if h.Ostree.Calls[call-1] == "set-default" && !after {
				expectLabels(t, h, 1, map[string]string{"/etc": etc, "/etc/dir/file": etc, "/etc/new": "system_u:object_r:new_t:s0", "/etc/default": etc})
				checked = true
			}
			return nil
		}
		must(t, e.Commit(t.Context(), r))
		if want := []string{"deploy", "set-default"}; !checked || !slices.Equal(h.Ostree.Calls, want) {
			t.Errorf("calls %q, want %q", h.Ostree.Calls, want)
		}
		expectLabels(t, h, 0, map[string]string{"/../../var/lib/pivot/journal.json": state, "/../../var/lib/pivot": state, ".origin": etc})
		links, err := filepath.Glob(filepath.Join(h.Physical(), "ostree/boot.?"))
		must(t, err)
		wanted := map[string]string{h.Path("/boot/loader/entries/ostree-1-os.conf"): boot, h.Path("/boot/loader"): boot, links[0]: usr}
		for path, want := range wanted {
			if label, err := hostfiles.LabelOf(path); label != want {
				t.Errorf("%s has the label %q, want %q (%v)", path, label, want, err)
			}
		}
		h.Boot()
		if h.Version() != "B.2" || string(h.Read("/etc/new")) != "x" {
			t.Errorf("version %s", h.Version())
		}
	})
	for verb, want := range map[string][]string{
		"deploy":      {"deploy"},
		"set-default": {"deploy", "set-default", "undeploy"},
	} {
		t.Run(verb+" fails", func(t *testing.T) {
			h, e, r := prepared(t)
			cut := errors.New("cut")
			h.Ostree.Fail = func(call int, after bool) error {
				if h.Ostree.Calls[call-1] == verb && !after {
					return cut
				}
				return nil
			}
			if err := e.Commit(t.Context(), r); !errors.Is(err, cut) || !slices.Equal(h.Ostree.Calls, want) {
				t.Errorf("error %v, calls %q, want %q", err, h.Ostree.Calls, want)
			}
			expectOldAlone(t, h)
		})
	}
	t.Run("set-default fails after its work", func(t *testing.T) {
		h, e, r := prepared(t)
		cut := errors.New("cut")
		h.Ostree.Fail = func(call int, after bool) error {
			if h.Ostree.Calls[call-1] == "set-default" && after {
				return cut
			}
			return nil
		}
		if err := e.Commit(t.Context(), r); !errors.Is(err, cut) || !strings.Contains(err.Error(), "the next boot is the one from before") {
			t.Errorf("error %v, calls %q", err, h.Ostree.Calls)
		}
		expectOldAlone(t, h)
	})
	t.Run("after a power cut in between", func(t *testing.T) {
		h, e, r := prepared(t)
		cut := errors.New("cut")
		h.Ostree.Fail = func(call int, _ bool) error {
			if h.Ostree.Calls[call-1] != "deploy" {
				return cut // including the undeploy
			}
			return nil
		}
		if err := e.Commit(t.Context(), r); !errors.Is(err, cut) {
			t.Fatalf("error %v", err)
		}
		h.Boot()
		if h.Version() != "A.1" {
			t.Fatalf("version %s", h.Version())
		}
		h.Policy(contexts...) // each boot starts without a policy in the kernel
		h.Ostree.Fail = nil
		e.Sysroot, e.Run = h.Sysroot(), h.Run
		must(t, e.Prepare(t.Context(), r))
		must(t, e.Commit(t.Context(), r))
		all, err := h.Sysroot().Deployments()
		if err != nil || len(all) != 2 {
			t.Errorf("%d deployments, %v", len(all), err)
		}
		h.Boot()
		if h.Version() != "B.2" {
			t.Errorf("version %s", h.Version())
		}
	})
	t.Run("bad policy", func(t *testing.T) {
		h, e, r := prepared(t)
		h.Policy("/etc/(?!x).* system_u:object_r:etc_t:s0") // an unsupported pattern
		if err := e.Commit(t.Context(), r); err == nil || !strings.Contains(err.Error(), "cannot match the pattern") || strings.Contains(err.Error(), "removed") {
			t.Errorf("error %v", err)
		}
		expectOldAlone(t, h)
	})
}

// expectLabels checks the labels of files in or beside a deployment. place is its index in boot
// order.
func expectLabels(t *testing.T, h *hostdir.Host, place int, want map[string]string) {
	t.Helper()
	all, err := h.Sysroot().Deployments()
	must(t, err)
	for name, label := range want {
		if have, err := hostfiles.LabelOf(all[place].Path + name); have != label {
			t.Errorf("%s has the label %q, want %q (%v)", name, have, label, err)
		}
	}
}

func expectOldAlone(t *testing.T, h *hostdir.Host) {
	t.Helper()
	if all, err := h.Sysroot().Deployments(); err != nil || len(all) != 1 {
		t.Errorf("%d deployments, %v", len(all), err)
	}
	h.Boot()
	if h.Version() != "A.1" {
		t.Errorf("version %s", h.Version())
	}
}

// TestDirectNeedsLabels: the new system's configuration and the kernel decide whether it will have
// SELinux, before anything is made. If so, libostree must be able to make an existing deployment
// the default.
func TestDirectNeedsLabels(t *testing.T) {
	for _, c := range []struct {
		name, config, args, version string
		kernel                      bool
		calls                       []string // nil if it steps aside
	}{
		{"on", "SELINUX=enforcing\nSELINUXTYPE=targeted", "", hostdir.LockInState, true, []string{"deploy", "set-default"}},
		{"permissive", "SELINUX=permissive\nSELINUXTYPE=targeted", "", hostdir.LockInState, true, []string{"deploy", "set-default"}},
		{"old libostree", "SELINUX=enforcing\nSELINUXTYPE=targeted", "", "2023.5", true, nil},
		{"disabled", "SELINUX=disabled\nSELINUXTYPE=targeted", "", "2022.7", true, []string{"deploy"}},
		{"not configured", "", "", "2022.7", true, []string{"deploy"}},
		{"off by an argument", "SELINUX=enforcing\nSELINUXTYPE=targeted", "selinux=0", "2022.7", true, []string{"deploy"}},
		{"not in the kernel", "SELINUX=enforcing\nSELINUXTYPE=targeted", "", "2022.7", false, []string{"deploy"}},
		{"on by an argument", "SELINUX=enforcing\nSELINUXTYPE=targeted", "security=selinux", hostdir.LockInState, false, []string{"deploy", "set-default"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 4)
			h := hostdir.New(t)
			h.Policy("/etc(/.*)? system_u:object_r:etc_t:s0")
			h.Write("/etc/selinux/config", []byte(c.config+"\n"))
			if !c.kernel {
				h.Write("/proc/filesystems", []byte("\text4\n"))
			}
			h.Ostree.Version = c.version
			e, r := &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}}, request(t, h)
			if c.args != "" {
				r.Kargs = append(r.Kargs, c.args)
			}
			err := e.Prepare(t.Context(), r)
			if c.calls == nil {
				if fault.KindOf(err) != fault.Later || !strings.Contains(err.Error(), c.version) {
					t.Errorf("error %v", err)
				}
				return
			}
			must(t, errors.Join(err, e.Commit(t.Context(), r)))
			if !slices.Equal(h.Ostree.Calls, c.calls) {
				t.Errorf("calls %q, want %q", h.Ostree.Calls, c.calls)
			}
		})
	}
}

// TestDirectRefuses: what only the started system can do is refused before anything is made.
func TestDirectRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		kind       fault.Kind
		prepare    func(h *hostdir.Host)
	}{
		{"layered", "layered", fault.Later, func(h *hostdir.Host) { h.Layer("strace;") }},
		{"zipl", "zipl", fault.Later, func(h *hostdir.Host) {
			h.Write("/sysroot/ostree/repo/config", append(h.Read("/sysroot/ostree/repo/config"), "bootloader=zipl\n"...))
		}},
		{"lock", "holds the lock", fault.Unavailable, func(h *hostdir.Host) { t.Cleanup(h.Lock()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hostdir.New(t)
			e, r := &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}}, request(t, h)
			c.prepare(h)
			if err := e.Prepare(t.Context(), r); fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v", err)
			}
			if len(h.Ostree.Calls) != 0 {
				t.Errorf("calls %q", h.Ostree.Calls)
			}
		})
	}
	h := hostdir.New(t)
	e, r := &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}}, request(t, h)
	must(t, (&rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}).Prepare(t.Context(), r))
	if err := e.Prepare(t.Context(), r); fault.KindOf(err) != fault.Later || !strings.Contains(err.Error(), "waits for the reboot") {
		t.Errorf("with a staged deployment: %v", err)
	}
	r.Kargs = r.Kargs[1:] // root= is the first
	must(t, (&rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}).Discard(t.Context()))
	if err := e.Prepare(t.Context(), r); err == nil || !strings.Contains(err.Error(), "lack root=") {
		t.Errorf("without root=: %v", err)
	}
}

// TestDirectIsReadBack: a deployment that ostree has made otherwise than it was asked to is no success. It is removed, and
// the old one stays the default.
func TestDirectIsReadBack(t *testing.T) {
	h := hostdir.New(t)
	e := &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}}
	r := request(t, h)
	must(t, e.Prepare(t.Context(), r))
	h.Ostree.Fail = func(call int, after bool) error {
		if !after || call != 1 {
			return nil
		}
		entries, err := filepath.Glob(filepath.Join(h.Physical(), "boot/loader/entries/*.conf"))
		for _, name := range entries {
			text, errRead := os.ReadFile(name)
			err = errors.Join(err, errRead, os.WriteFile(name, []byte(strings.Replace(string(text), " nosmt", "", 1)), 0o644))
		}
		return err
	}
	if err := e.Commit(t.Context(), r); err == nil || !strings.Contains(err.Error(), "nosmt") {
		t.Errorf("error %v", err)
	}
}

// TestDirectPackages: without rpm-ostree, changes of packages are refused at once, and each one is named; with it, the
// started system may make them.
func TestDirectPackages(t *testing.T) {
	h := hostdir.New(t)
	e := &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}}
	plan := pivot.Plan{Packages: []pivot.PackageChange{{Action: pivot.PackageInstall, Name: "strace"}, {Action: pivot.PackageUninstall, Name: "vim"}}}
	const want = "cannot change packages by ostree alone (install strace, uninstall vim): only rpm-ostree can"
	if err := e.Preflight(t.Context(), plan); fault.KindOf(err) != fault.Refused || err.Error() != want {
		t.Errorf("error %v", err)
	}
	h.InstallRpmOstree(standin.Control{})
	must(t, e.Preflight(t.Context(), plan))
}
