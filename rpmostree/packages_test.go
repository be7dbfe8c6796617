package rpmostree_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
	standin "machine-pivot/test/worlds/rpmostree"
)

// realtime are the package changes for the machine-config operator's realtime kernel type,
// abridged.
var realtime = pivot.Packages{Wishes: []pivot.Package{
	{Name: "kernel-rt-core", Wish: pivot.PackagePresent},
	{Name: "kernel-rt-kvm", Wish: pivot.PackageOffered},
	{Name: "kernel-core", Wish: pivot.PackageAbsent},
	{Name: "kernel-modules-core", Wish: pivot.PackageAbsent}, // not in the image
}}

// back are the package changes back to the default kernel.
var back = pivot.Packages{Wishes: []pivot.Package{
	{Name: "kernel-rt-core", Wish: pivot.PackageDefault},
	{Name: "kernel-rt-kvm", Wish: pivot.PackageDefault},
	{Name: "kernel-core", Wish: pivot.PackageDefault},
	{Name: "kernel-modules-core", Wish: pivot.PackageDefault},
}}

// repository is a package repository in a directory of the host. It records the requests.
type repository struct {
	offers []string
	dir    string
	asked  [][]string
}

func newRepository(t *testing.T, h *hostdir.Host) *repository {
	t.Helper()
	need.Program(t, "createrepo_c")
	r := &repository{offers: []string{"kernel-rt-core", "kernel-rt-kvm", "kernel-64k-core", "usbguard"}, dir: "/var/cache/packages"}
	dir := h.Path(r.dir)
	must(t, os.MkdirAll(dir, 0o755))
	must(t, oscontainer.Repository(dir, []oscontainer.RPM{
		{Name: "kernel-rt-core", Version: "6.1", Files: map[string][]byte{
			"/usr/lib/modules/6.1+rt/vmlinuz": []byte("realtime kernel"), "/usr/lib/modules/6.1+rt/initramfs.img": []byte("its initramfs"),
		}},
		{Name: "kernel-64k-core", Version: "6.1", Files: map[string][]byte{
			"/usr/lib/modules/6.1+64k/vmlinuz": []byte("kernel with large pages"), "/usr/lib/modules/6.1+64k/initramfs.img": []byte("its initramfs"),
		}},
		{Name: "kernel-rt-kvm", Version: "6.1", Files: map[string][]byte{"/usr/lib/modules/6.1+rt/kvm.ko": []byte("kvm")}},
		{Name: "usbguard", Version: "1.0", Files: map[string][]byte{"/usr/bin/usbguard": []byte("usbguard")}},
	}))
	return r
}

func (r *repository) fetch(_ context.Context, names []string) (pivot.Repository, error) {
	r.asked = append(r.asked, names)
	return pivot.Repository{Dir: r.dir, Names: r.offers}, nil
}

// TestWithPackages: another image, arguments, a file and packages become one deployment, with only
// one changing call of rpm-ostree. Then an extension is added, and the default kernel comes back.
// All staged deployments are locked (P80).
func TestWithPackages(t *testing.T) {
	for _, c := range []struct{ version, libostree string }{
		{"2026.2", hostdir.LockInState}, {"2024.6", "2022.7"}, {"2024.5", hostdir.LockInState}, {"2024.5", "2022.7"}, {"2020.4", "2022.7"}, {"2020.3", "2022.7"},
	} {
		t.Run(c.version+" on "+c.libostree, func(t *testing.T) {
			sample.Short(t, 8)
			h := hostdir.New(t)
			h.InstallRpmOstree(standin.Control{Version: c.version})
			h.Ostree.Version = c.libostree
			h.Ostree.Programs = map[string]string{"systemctl": ""}
			h.Ostree.Fail = func(int, bool) error { return checkLocked(h) }
			repo := newRepository(t, h)
			r := request(t, h)
			if strings.HasPrefix(c.version, "2020.") { // it does not support native containers
				r.Image.Native = false
			}
			r.Packages, r.Repository = realtime, repo.fetch

			move(t, h, r)
			call := wantCalls(t, h, "override remove", "--install=kernel-rt-core --install=kernel-rt-kvm kernel-core")
			if by := strings.Contains(call, "--lock-finalization"); by == (c.version == "2020.3") { // which has no such option
				t.Errorf("%s: locked by an option: %v", call, by)
			}
			h.Boot()
			wantKernel(t, h, "6.1+rt")
			if h.Version() != "B.2" || !strings.HasSuffix(h.Options(), " nosmt") || string(h.Read("/etc/new")) != "x" {
				t.Errorf("version %s, options %s", h.Version(), h.Options())
			}
			if _, err := os.Stat(h.Path("/etc/yum.repos.d/pivot-extensions.repo")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the repository's file is there: %v", err)
			}

			// The image stays, and an extension is added.
			r = again(t, h, pivot.Packages{Wishes: append(slices.Clone(realtime.Wishes), pivot.Package{Name: "usbguard", Wish: pivot.PackagePresent})}, repo)
			move(t, h, r)
			wantCalls(t, h, "install", "usbguard")
			h.Boot()
			wantKernel(t, h, "6.1+rt")
			if string(h.Read("/usr/bin/usbguard")) != "usbguard" {
				t.Error("the extension is not there")
			}

			// Back to the default kernel, which needs no repository. The extension stays.
			asked := len(repo.asked)
			move(t, h, again(t, h, back, repo))
			wantCalls(t, h, "override reset", "--uninstall=kernel-rt-core --uninstall=kernel-rt-kvm kernel-core")
			h.Boot()
			wantKernel(t, h, "6.1")
			if string(h.Read("/usr/bin/usbguard")) != "usbguard" || len(repo.asked) != asked {
				t.Errorf("the extension is gone, or a repository was asked for: %q", repo.asked)
			}
		})
	}
}

// checkLocked returns an error if a shutdown could finalize the staged deployment: it is not
// locked, and libostree's unit for that is not disabled.
func checkLocked(h *hostdir.Host) error {
	staged, err := h.Sysroot().Staged()
	if committing := h.Ostree.Calls[len(h.Ostree.Calls)-1] == "finalize-staged"; err != nil || staged == nil || staged.Locked || committing {
		return err
	}
	_, err = os.Stat(h.Path("/run/systemd/system/ostree-finalize-staged.service.d/pivot.conf"))
	return err
}

// again returns a request that changes only packages.
func again(t *testing.T, h *hostdir.Host, p pivot.Packages, repo *repository) pivot.Spec {
	t.Helper()
	state, err := h.Observe(t.Context(), pivot.Target{})
	must(t, err)
	must(t, os.RemoveAll(h.Path("/run/rpm-ostree-standin")))
	return pivot.Spec{Merge: state.Booted, Commit: state.Booted.Commit, Kargs: state.Booted.Options, Packages: p, Repository: repo.fetch}
}

// move makes a deployment, and checks that it is locked before the commit.
func move(t *testing.T, h *hostdir.Host, r pivot.Spec) {
	t.Helper()
	var notes string
	e := engine(h, false, &notes)
	must(t, e.Prepare(t.Context(), r))
	staged, err := e.Sysroot.Staged()
	must(t, err)
	if staged == nil || !staged.Locked {
		t.Fatalf("staged %+v is not locked", staged)
	}
	must(t, e.Commit(t.Context(), r))
}

// wantCalls checks that exactly one call of rpm-ostree has changed something, and which. It returns the call.
func wantCalls(t *testing.T, h *hostdir.Host, verb, rest string) string {
	t.Helper()
	calls, err := standin.Calls(h.Root)
	must(t, err)
	var changing []string
	for _, call := range calls {
		if !strings.HasPrefix(call, "status") && !strings.HasPrefix(call, "db ") {
			changing = append(changing, strings.TrimSpace(call))
		}
	}
	if len(changing) != 1 || !strings.HasPrefix(changing[0], verb) || !strings.HasSuffix(changing[0], rest) {
		t.Fatalf("calls %q, want one: %s … %s", calls, verb, rest)
	}
	return changing[0]
}

// wantKernel checks that the booted system has one kernel, and that its boot entry starts that.
func wantKernel(t *testing.T, h *hostdir.Host, release string) {
	t.Helper()
	booted, err := h.Sysroot().Booted()
	must(t, err)
	kernels, err := filepath.Glob(filepath.Join(booted.Path, "usr/lib/modules/*/vmlinuz"))
	must(t, err)
	if len(kernels) != 1 || filepath.Base(filepath.Dir(kernels[0])) != release {
		t.Errorf("kernels %q, want %s", kernels, release)
	}
	all, err := h.Sysroot().Deployments()
	must(t, err)
	if all[0].ID() != booted.ID() || !strings.HasSuffix(all[0].Entry.Linux, "/vmlinuz-"+release) {
		t.Errorf("boot entry %+v, want the kernel %s", all[0].Entry, release)
	}
}

// TestPackagesAcrossImages: for another image rpm-ostree resolves the packages again. A package
// that an administrator has layered stays (P80).
func TestPackagesAcrossImages(t *testing.T) {
	h := hostdir.New(t)
	h.InstallRpmOstree(standin.Control{})
	repo := newRepository(t, h)
	r := again(t, h, realtime, repo)
	move(t, h, r)
	h.Boot()
	booted, err := h.Sysroot().Booted()
	must(t, err)
	h.SetOrigin(strings.Replace(string(booted.Origin.Bytes()), "requested=", "requested=strace;", 1))
	r = request(t, h)
	r.Packages, r.Repository = realtime, repo.fetch
	must(t, os.RemoveAll(h.Path("/run/rpm-ostree-standin")))
	move(t, h, r)
	wantCalls(t, h, "rebase", ":"+r.Commit)
	h.Boot()
	wantKernel(t, h, "6.1+rt")
	if booted, err = h.Sysroot().Booted(); err != nil || h.Version() != "B.2" || !slices.Contains(booted.Origin.LayeredPackages(), "strace") {
		t.Errorf("version %s, origin %s, %v", h.Version(), booted.Origin.Bytes(), err)
	}
}

// TestPackagesAreThere: packages that the image already has need neither a call nor a
// repository (P80).
func TestPackagesAreThere(t *testing.T) {
	h := hostdir.New(t)
	h.InstallRpmOstree(standin.Control{})
	r := request(t, h)
	r.Packages = pivot.Packages{Wishes: []pivot.Package{{Name: "kernel-core", Wish: pivot.PackagePresent}, {Name: "kernel-rt-core", Wish: pivot.PackageAbsent}}}
	r.Repository = func(context.Context, []string) (pivot.Repository, error) {
		return pivot.Repository{}, errors.New("a repository was asked for")
	}
	move(t, h, r)
	calls, err := standin.Calls(h.Root)
	if err != nil || strings.Contains(strings.Join(calls, ""), "override") || strings.Contains(strings.Join(calls, ""), "install") {
		t.Errorf("calls %q, %v", calls, err)
	}
}

// TestPackagesFail: after a failure, wherever and however a call fails, the running system stays
// the next boot, nothing is staged, and no repository is configured. Failures that a retry can
// help are retried (P80).
func TestPackagesFail(t *testing.T) {
	for _, at := range []string{"start", "locked", "staged", "end"} {
		for _, c := range []struct {
			do, message string
			kind        fault.Kind
			recovers    bool
		}{
			{"fail", "Bus owner changed, aborting. This likely means the daemon crashed", 0, true},
			{"fail", "Could not depsolve transaction; 1 problem detected", fault.Refused, at == "staged" || at == "end"},
			{"fail", "nobody foresaw this", fault.Internal, at == "staged" || at == "end"},
			{"hang", "rpm-ostree did not answer within", fault.Unavailable, true}, // the next try succeeds
		} {
			t.Run(fmt.Sprintf("%s %.8s", at, c.message), func(t *testing.T) {
				sample.Short(t, 8)
				t.Parallel()
				h := hostdir.New(t)
				h.InstallRpmOstree(standin.Control{Faults: []standin.Fault{{Verb: "override", Nth: 1, At: at, Do: c.do, Message: c.message}}})
				var notes string
				e, repo := engine(h, false, &notes), newRepository(t, h)
				if c.do == "hang" {
					e.Limits.Rebase = 2 * time.Second
				}
				r := request(t, h)
				r.Packages, r.Repository = realtime, repo.fetch
				err := e.Prepare(t.Context(), r)
				if c.recovers {
					must(t, err)
					must(t, e.Commit(t.Context(), r))
					h.Boot()
					wantKernel(t, h, "6.1+rt")
					return
				}
				if err == nil || fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.message) {
					t.Errorf("error %v", err)
				}
				discarded(t, h, e)
				h.Boot()
				wantKernel(t, h, "6.1")
			})
		}
	}
}

// discarded discards what an engine has staged, and checks that nothing is left.
func discarded(t *testing.T, h *hostdir.Host, e pivot.Engine) {
	t.Helper()
	must(t, e.Discard(t.Context()))
	if staged, err := h.Sysroot().Staged(); err != nil || staged != nil {
		t.Errorf("staged %+v, %v", staged, err)
	}
	if _, err := os.Stat(h.Path("/etc/yum.repos.d/pivot-extensions.repo")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the repository's file is there: %v", err)
	}
}

// TestPackagesWithoutRpmOstree: package changes are refused by name, before anything is pulled.
// The initramfs leaves them to the started system, if that has rpm-ostree (P80).
func TestPackagesWithoutRpmOstree(t *testing.T) {
	h := hostdir.New(t)
	plan := pivot.Plan{Packages: []pivot.PackageChange{{Name: "usbguard", Action: pivot.PackageInstall}}}
	for name, e := range map[string]pivot.Engine{
		"ostree":    &rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run},
		"initramfs": &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}},
	} {
		err := e.Preflight(t.Context(), plan)
		if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "install usbguard") || fault.HintOf(err) == "" {
			t.Errorf("%s: error %v", name, err)
		}
	}
	h.InstallRpmOstree(standin.Control{})
	early := &rpmostree.Direct{Ostree: rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}}
	r := request(t, h)
	r.Packages = pivot.Packages{Wishes: []pivot.Package{{Name: "usbguard", Wish: pivot.PackagePresent}}}
	must(t, early.Preflight(t.Context(), plan))
	if err := early.Prepare(t.Context(), r); fault.KindOf(err) != fault.Later {
		t.Errorf("initramfs: error %v", err)
	}
	plain := &rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run}
	if err := plain.Prepare(t.Context(), r); fault.KindOf(err) != fault.Refused {
		t.Errorf("ostree: error %v", err)
	}
}

// TestPackagesOfOthers (P80): layered packages that the request does not name move along to
// another image, from the repository of the request.
func TestPackagesOfOthers(t *testing.T) {
	h := hostdir.New(t)
	h.InstallRpmOstree(standin.Control{})
	repo := newRepository(t, h)
	move(t, h, again(t, h, realtime, repo))
	h.Boot()
	r := request(t, h)
	r.Repository = repo.fetch
	must(t, os.RemoveAll(h.Path("/var/cache/rpm-ostree-standin"))) // so that the packages must be fetched again
	move(t, h, r)
	h.Boot()
	wantKernel(t, h, "6.1+rt")
	if h.Version() != "B.2" || len(repo.asked) != 2 {
		t.Errorf("version %s, asked for %q", h.Version(), repo.asked)
	}
}
