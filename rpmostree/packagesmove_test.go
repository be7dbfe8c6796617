package rpmostree_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	standin "machine-pivot/test/worlds/rpmostree"
)

// wishes returns the wishes for a kernel type and extensions, and for none of the others that the
// tests use.
func wishes(kernel string, extensions ...string) pivot.Packages {
	var p pivot.Packages
	switch kernel {
	case "rt":
		p.Add(pivot.PackagePresent, "kernel-rt-core")
		p.Add(pivot.PackageOffered, "kernel-rt-kvm")
		p.Add(pivot.PackageAbsent, "kernel-core", "kernel-modules-core")
	case "64k":
		p.Add(pivot.PackagePresent, "kernel-64k-core")
		p.Add(pivot.PackageAbsent, "kernel-core", "kernel-modules")
	}
	p.Add(pivot.PackagePresent, extensions...)
	p.Add(pivot.PackageDefault, "kernel-rt-core", "kernel-rt-kvm", "kernel-64k-core", "kernel-core", "kernel-modules", "kernel-modules-core", "usbguard")
	return p
}

// requestOf returns a request for the next system with packages. Earlier calls are forgotten.
func requestOf(t *testing.T, h *hostdir.Host, p pivot.Packages, repo *repository) pivot.Spec {
	t.Helper()
	r := request(t, h)
	r.Packages, r.Repository = p, repo.fetch
	forget(t, h)
	return r
}

func forget(t *testing.T, h *hostdir.Host) {
	t.Helper()
	must(t, os.RemoveAll(h.Path("/run/rpm-ostree-standin")))
}

// TestFewestAssemblies (P80): rpm-ostree assembles one deployment for another image, from each kernel type to each,
// with and without an extension; none if nothing is layered on the new image. Nothing is unlocked in between.
func TestFewestAssemblies(t *testing.T) {
	sets := map[string]pivot.Packages{
		"default": wishes(""), "default+usbguard": wishes("", "usbguard"), "rt": wishes("rt"),
		"rt+usbguard": wishes("rt", "usbguard"), "64k": wishes("64k"), "64k+usbguard": wishes("64k", "usbguard"),
	}
	for from, had := range sets {
		t.Run(from, func(t *testing.T) {
			sample.Short(t, 6)
			t.Parallel()
			h := hostdir.New(t)
			h.InstallRpmOstree(standin.Control{})
			h.Ostree.Version = hostdir.LockInState
			h.Ostree.Fail = func(int, bool) error { return checkLocked(h) }
			repo := newRepository(t, h)
			if from != "default" {
				move(t, h, again(t, h, had, repo))
				h.Boot()
			}
			for to, wanted := range sets {
				r := requestOf(t, h, wanted, repo)
				var notes string
				e := engine(h, false, &notes)
				must(t, e.Prepare(t.Context(), r))
				want := 1
				if to == "default" {
					want = 0
				}
				assembled, err := standin.Assemblies(h.Root)
				if err != nil || len(assembled) != want {
					t.Errorf("to %s: assembled %q, %v, want %d\n%s", to, assembled, err, want, notes)
				}
				must(t, e.Discard(t.Context()))
			}
		})
	}
}

// TestAtOnce (P80): another image and other packages are one request to the daemon. So is another kernel type, for
// which the command line needs two calls even without another image. Arguments, files and the image's name are those of
// the request. Progress is shown.
func TestAtOnce(t *testing.T) {
	for _, c := range []struct {
		version, libostree string
		legacy             bool
	}{
		{"2026.2", hostdir.LockInState, false}, {"2024.5", hostdir.LockInState, true}, {"2022.10", "2022.7", false}, {"2019.5", "2022.7", true},
	} {
		t.Run(c.version+" on "+c.libostree, func(t *testing.T) {
			sample.Short(t, 4)
			h := hostdir.New(t)
			h.InstallRpmOstree(standin.Control{Version: c.version})
			h.Ostree.Version = c.libostree
			h.Ostree.Programs = map[string]string{"systemctl": ""}
			h.Ostree.Fail = func(int, bool) error { return checkLocked(h) }
			repo := newRepository(t, h)
			r := requestOf(t, h, wishes("rt"), repo)
			if c.legacy {
				r.Image.Native = false
			}
			move(t, h, r)
			h.Boot()

			// The same image: kernel-modules-core comes back, kernel-modules is removed.
			var notes string
			e := engine(h, false, &notes)
			booted, err := h.Sysroot().Booted()
			must(t, err)
			h.SetOrigin(strings.Replace(string(booted.Origin.Bytes()), "remove=", "remove=kernel-modules-core;", 1))
			r = again(t, h, wishes("64k"), repo)
			must(t, e.Prepare(t.Context(), r))
			must(t, e.Commit(t.Context(), r))
			wantCalls(t, h, "UpdateDeployment install=kernel-64k-core uninstall=kernel-rt-core uninstall=kernel-rt-kvm remove=kernel-modules", "reset=kernel-modules-core")
			h.Boot()
			wantKernel(t, h, "6.1+64k")

			// Another image, and back to the default kernel.
			asked := len(repo.asked)
			h.PutIntoNext(map[string]string{"/usr/share/another": "image"})
			r = requestOf(t, h, wishes(""), repo)
			if c.legacy {
				r.Image.Native = false
			}
			notes = ""
			e = engine(h, false, &notes)
			must(t, e.Prepare(t.Context(), r))
			must(t, e.Commit(t.Context(), r))
			wantCalls(t, h, "UpdateDeployment set-refspec=:"+r.Commit+" uninstall=kernel-64k-core", "reset=kernel-core reset=kernel-modules")
			for _, line := range []string{"rpm-ostree: Resolving dependencies\n", "rpm-ostree: Staging deployment... done\n"} {
				if !strings.Contains(notes, line) {
					t.Errorf("notes %q, want %q", notes, line)
				}
			}
			h.Boot()
			wantKernel(t, h, "6.1")
			booted, err = h.Sysroot().Booted()
			must(t, err)
			if string(h.Read("/usr/share/another")) != "image" || !strings.HasSuffix(h.Options(), " nosmt nosmt") || string(h.Read("/etc/new")) != "x" || len(repo.asked) != asked {
				t.Errorf("version %s, options %s, repository asked for %q", h.Version(), h.Options(), repo.asked)
			}
			if named := booted.Origin.ContainerImageReference(); booted.Origin.Layered() || c.legacy == (named == container) || c.legacy && booted.Origin.CustomURL() == "" {
				t.Errorf("origin %s", booted.Origin.Bytes())
			}
		})
	}
}

// TestNotAtOnce (P80): if the daemon cannot be asked, the command line does the same with one
// deployment more, and the reason is noted.
func TestNotAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		control standin.Control
		note    string
		to      pivot.Packages
		image   func(h *hostdir.Host)
	}{
		"no bus":                           {standin.Control{NoBus: true}, "cannot connect to the system bus", wishes(""), nil},
		"no daemon":                        {standin.Control{NoDaemon: true}, "was not provided by any .service files", wishes(""), nil},
		"no daemon, nor an option to lock": {standin.Control{NoDaemon: true, Version: "2020.3"}, "was not provided by any .service files", wishes(""), nil},
		"another daemon":                   {standin.Control{NoUpdate: true}, "org.freedesktop.DBus.Error.UnknownMethod", wishes(""), nil},
		"an old daemon":                    {standin.Control{Version: "2019.4"}, "rpm-ostree 2019.4 does not lock", wishes(""), nil},
		// The daemon looks for what is removed in the old image's packages, if others are installed.
		"a package of the new image": {standin.Control{}, `Package "kernel-modules-core" not found`, wishes("rt", "usbguard"), func(h *hostdir.Host) {
			h.PutIntoNext(map[string]string{standin.DatabasePath: string(standin.Database("6.1", map[string][]string{
				"kernel": nil, "kernel-core": {"/usr/lib/modules/6.1"}, "kernel-modules-core": nil,
			}))})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 4)
			t.Parallel()
			h := hostdir.New(t)
			h.InstallRpmOstree(c.control)
			if h.Ostree.Version = hostdir.LockInState; c.control.Version != "" {
				h.Ostree.Version = "2022.7"
			}
			if c.image != nil {
				c.image(h)
			}
			h.Ostree.Programs = map[string]string{"systemctl": ""}
			h.Ostree.Fail = func(int, bool) error { return checkLocked(h) }
			repo := newRepository(t, h)
			move(t, h, again(t, h, wishes("rt"), repo))
			h.Boot()
			r := requestOf(t, h, c.to, repo)
			if c.control.Version != "" {
				r.Image.Native = false
			}
			h.Write("/etc/yum.repos.d/all.repo", []byte("[all]\nbaseurl=file://"+repo.dir+"\ngpgcheck=0\n")) // not from an image
			var notes string
			e := engine(h, false, &notes)
			must(t, e.Prepare(t.Context(), r))
			must(t, e.Commit(t.Context(), r))
			assembled, err := standin.Assemblies(h.Root)
			if want := len(c.to.Names(pivot.PackagePresent))/2 + 1; err != nil || len(assembled) != want || !strings.Contains(notes, c.note) || strings.Contains(notes, " tries") { // it is not asked again
				t.Errorf("assembled %q, %v\n%s", assembled, err, notes)
			}
			h.Boot()
			if h.Version() != "B.2" {
				t.Errorf("version %s", h.Version())
			}
			want := "6.1"
			if slices.Contains(c.to.Names(pivot.PackagePresent), "kernel-rt-core") {
				want = "6.1+rt"
			}
			wantKernel(t, h, want)
		})
	}
}

// TestAtOnceFails (P80) is TestPackagesFail for requests to the daemon, which may also die.
func TestAtOnceFails(t *testing.T) {
	for _, at := range []string{"start", "locked", "staged", "end"} {
		late := at == "staged" || at == "end"
		for _, c := range []struct {
			do, message string
			kind        fault.Kind
			recovers    bool
		}{
			{"fail", "Could not depsolve transaction; 1 problem detected", fault.Refused, late},
			{"fail", "nobody foresaw this", fault.Internal, late},
			{"fail", "Curl error (28): Timeout was reached", 0, true},
			{"die", "rpm-ostree's daemon has ended the connection", 0, true},
			{"hang", "rpm-ostree did not answer within", 0, true},
		} {
			if c.do == "hang" && at != "locked" {
				continue
			}
			t.Run(fmt.Sprintf("%s %s %.8s", at, c.do, c.message), func(t *testing.T) {
				sample.Short(t, 8)
				t.Parallel()
				h := hostdir.New(t)
				h.InstallRpmOstree(standin.Control{})
				repo := newRepository(t, h)
				move(t, h, again(t, h, wishes("rt"), repo))
				h.Boot()
				h.InstallRpmOstree(standin.Control{Faults: []standin.Fault{{Verb: "UpdateDeployment", Nth: 1, At: at, Do: c.do, Message: c.message}}})
				var notes string
				e := engine(h, false, &notes)
				if c.do == "hang" {
					e.Limits.Rebase = 4 * time.Second
				}
				r := requestOf(t, h, wishes("", "usbguard"), repo)
				err := e.Prepare(t.Context(), r)
				if c.recovers {
					must(t, err)
					if c.kind == 0 && c.do != "fail" && !strings.Contains(notes, c.message) {
						t.Errorf("notes %q", notes)
					}
					must(t, e.Commit(t.Context(), r))
					h.Boot()
					wantKernel(t, h, "6.1")
					return
				}
				if err == nil || fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.message) {
					t.Errorf("error %v\n%s", err, notes)
				}
				discarded(t, h, e)
				h.Boot()
				wantKernel(t, h, "6.1+rt")
			})
		}
	}
}

// TestAtOnceCancelled (P80): when pivot is told to stop, the daemon's transaction is cancelled, and
// nothing is staged.
func TestAtOnceCancelled(t *testing.T) {
	h := hostdir.New(t)
	h.InstallRpmOstree(standin.Control{})
	repo := newRepository(t, h)
	move(t, h, again(t, h, wishes("rt"), repo))
	h.Boot()
	h.InstallRpmOstree(standin.Control{Faults: []standin.Fault{{Verb: "UpdateDeployment", At: "locked", Do: "hang"}}})
	r := requestOf(t, h, wishes(""), repo)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var notes string
	e := engine(h, false, &notes)
	e.Note = func(line string) {
		if line == "rpm-ostree: Resolving dependencies" {
			stop()
		}
	}
	if err := e.Prepare(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	discarded(t, h, e)
	h.InstallRpmOstree(standin.Control{})
	must(t, engine(h, false, &notes).Prepare(t.Context(), r))
}

// TestAtOnceBusy (P80): a transaction of another client is waited for.
func TestAtOnceBusy(t *testing.T) {
	h := hostdir.New(t)
	h.InstallRpmOstree(standin.Control{})
	repo := newRepository(t, h)
	move(t, h, again(t, h, wishes("rt"), repo))
	h.Boot()
	r := requestOf(t, h, wishes(""), repo)
	h.InstallRpmOstree(standin.Control{Transaction: []string{"upgrade", ":1.9", "/org/projectatomic/rpmostree1/os"}, BusyCalls: 3})
	var notes string
	must(t, engine(h, false, &notes).Prepare(t.Context(), r))
	if !strings.Contains(notes, "rpm-ostree is busy: transaction in progress: upgrade") {
		t.Errorf("notes %q", notes)
	}
	wantCalls(t, h, "UpdateDeployment set-refspec=:"+r.Commit, "reset=kernel-core")
}

// rootOfKilled has the root directory of the host, in the process that TestAtOnceKilled kills.
const rootOfKilled = "TEST_ROOT_OF_KILLED"

// TestAtOnceKilled (P80): pivot is killed while the daemon works for it. The daemon continues, and the
// next run waits for it and takes what it has staged.
func TestAtOnceKilled(t *testing.T) {
	if root := os.Getenv(rootOfKilled); root != "" {
		changes := []pivot.PackageChange{
			{Action: pivot.PackageUninstall, Name: "kernel-rt-core"}, {Action: pivot.PackageUninstall, Name: "kernel-rt-kvm"}, {Action: pivot.PackageRestore, Name: "kernel-core"},
		}
		t.Fatal(rpmostree.UpdateAtOnce(t.Context(), root, os.Getenv("TEST_COMMIT"), changes, func(line string) { fmt.Println(line) }))
	}
	h := hostdir.New(t)
	h.InstallRpmOstree(standin.Control{})
	repo := newRepository(t, h)
	move(t, h, again(t, h, wishes("rt"), repo))
	h.Boot()
	r := requestOf(t, h, wishes(""), repo)

	killed := exec.Command(os.Args[0], "-test.run=^TestAtOnceKilled$")
	killed.Env = append(os.Environ(), rootOfKilled+"="+h.Root, "TEST_COMMIT="+r.Commit)
	out, err := killed.StdoutPipe()
	must(t, err)
	must(t, killed.Start())
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "Resolving dependencies" {
		t.Errorf("line %q, %v", lines.Text(), lines.Err())
	}
	must(t, killed.Process.Kill())
	_ = killed.Wait() // killed

	var notes string
	e := engine(h, false, &notes)
	e.Retry.Sleep = func(context.Context, time.Duration) error { time.Sleep(20 * time.Millisecond); return nil }
	must(t, e.Prepare(t.Context(), r))
	must(t, e.Commit(t.Context(), r))
	wantCalls(t, h, "UpdateDeployment set-refspec=:"+r.Commit, "reset=kernel-core")
	h.Boot()
	wantKernel(t, h, "6.1")
}
