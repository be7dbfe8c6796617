package stories_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/pivot"
	engines "machine-pivot/rpmostree"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/rpmostree"
)

// bootWith is boot with an engine chosen by name. It returns the notes.
func bootWith(t *testing.T, h *hostdir.Host, engine string, changes ...func(*machine.Machine)) (notes string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reboot := h.Reboot
	h.Reboot = func(ctx context.Context) error { cancel(); return reboot(ctx) }
	m := newMachine(t, h)
	m.Progress.Emit = func(e pivot.Event) {
		if e.Kind == pivot.EventNoted || e.Kind == pivot.EventWaiting {
			notes += fmt.Sprintf("%s %v\n", e.Message, e.Err)
		}
	}
	if err := m.UseEngine(engine); err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(m)
	}
	b := firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath}
	err = b.Run(ctx)
	return notes, err
}

// arrive completes the first boot, and checks that it took one reboot.
func arrive(t *testing.T, h *hostdir.Host, engine string) (notes string) {
	t.Helper()
	notes, err := bootWith(t, h, engine)
	if err != nil {
		t.Fatal(err)
	}
	expectOld(t, h)
	h.Boot()
	if _, err := bootWith(t, h, engine); err != nil {
		t.Fatal(err)
	}
	expectNew(t, h)
	expectClosed(t, h)
	if h.Reboots != 1 {
		t.Errorf("%d reboots asked for", h.Reboots)
	}
	return notes
}

// verbsOf returns the verbs that the stand-in was called with in this boot.
func verbsOf(t *testing.T, h *hostdir.Host) (verbs []string) {
	t.Helper()
	calls, err := rpmostree.Calls(h.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		verb, _, _ := strings.Cut(strings.TrimSpace(c), " ")
		verbs = append(verbs, verb)
	}
	return verbs
}

// TestEngines: the machine reaches its target with one reboot, with any release of rpm-ostree
// and libostree and whichever of them makes the deployment (P1, P5).
func TestEngines(t *testing.T) {
	for _, c := range []struct {
		name, engine string
		control      rpmostree.Control
		libostree    string
		rebase       bool // by rpm-ostree
	}{
		{"beside rpm-ostree", "auto", rpmostree.Control{}, "", false},
		{"beside rpm-ostree with the lock in the state", "auto", rpmostree.Control{}, hostdir.LockInState, false},
		{"rpm-ostree without a lock of its own", "rpm-ostree", rpmostree.Control{Version: "2020.3"}, "", true},
		{"rpm-ostree without --bypass-driver", "rpm-ostree", rpmostree.Control{Version: "2021.2"}, "", true},
		{"rpm-ostree that compares keys only", "rpm-ostree", rpmostree.Control{Version: "2023.6"}, "", true},
		{"the lock file on a newer libostree", "rpm-ostree", rpmostree.Control{Version: "2024.5"}, hostdir.LockInState, true},
		{"the newest", "rpm-ostree", rpmostree.Control{}, hostdir.LockInState, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 6)
			h := newHost(t)
			h.InstallRpmOstree(c.control)
			h.Ostree.Version = c.libostree
			notes, err := bootWith(t, h, c.engine)
			if err != nil {
				t.Fatal(err, notes)
			}
			if got := strings.Contains(strings.Join(verbsOf(t, h), " "), "rebase"); got != c.rebase {
				t.Errorf("calls %q", verbsOf(t, h))
			}
			h.Boot()
			if _, err := bootWith(t, h, c.engine); err != nil {
				t.Fatal(err)
			}
			expectNew(t, h)
			expectClosed(t, h)
			booted, err := h.Sysroot().Booted()
			if err != nil || booted.Origin.CustomURL() != "pivot://"+h.Image || booted.Origin.Get("refspec") != h.Commit {
				t.Errorf("origin %s, %v", booted.Origin.Bytes(), err)
			}
		})
	}
}

// TestLayered: layered packages are kept, and the layered commit is proven by its base.
func TestLayered(t *testing.T) {
	h := newHost(t)
	h.InstallRpmOstree(rpmostree.Control{})
	h.Layer("strace;")
	if _, err := bootWith(t, h, "ostree"); fault.KindOf(err) != fault.Refused || fault.HintOf(err) == "" {
		t.Errorf("libostree alone: %v", err)
	}
	if _, err := os.Stat(h.Path("/sysroot/ostree/repo/objects/" + h.Commit[:2] + "/" + h.Commit[2:] + ".commit")); err == nil {
		t.Error("libostree alone: refused only after the pull")
	}
	arrive(t, h, "auto")
	booted, err := h.Sysroot().Booted()
	if err != nil || booted.Origin.Value("packages", "requested") != "strace;" || booted.Base.String() != h.Commit || booted.Checksum == booted.Base {
		t.Errorf("booted %+v, %v", booted, err)
	}
}

// TestInTheWay: pivot waits for a transaction and names an update driver (P38). A daemon that
// does not come up does no harm if it is not needed; otherwise pivot waits for it.
func TestInTheWay(t *testing.T) {
	for _, c := range []struct {
		name, engine string
		control      rpmostree.Control
		want         string // in the notes
	}{
		{"transaction", "auto", rpmostree.Control{Transaction: []string{"upgrade", "cli", "/"}, BusyCalls: 2}, "in progress: upgrade cli"},
		{"transaction", "rpm-ostree", rpmostree.Control{Transaction: []string{"upgrade", "cli", "/"}, BusyCalls: 3}, "in progress: upgrade cli"},
		{"driver", "auto", rpmostree.Control{Driver: &rpmostree.Driver{Name: "Zincati", Unit: "zincati.service", Active: true}}, "managed by Zincati (zincati.service)"},
		{"driver", "rpm-ostree", rpmostree.Control{Driver: &rpmostree.Driver{Name: "Zincati", Unit: "zincati.service", Active: true}}, "managed by Zincati (zincati.service)"},
		{"no daemon", "auto", rpmostree.Control{DaemonFails: 99}, "going on without rpm-ostree"},
		{"daemon late", "rpm-ostree", rpmostree.Control{DaemonFails: 2}, "rpm-ostreed.service failed"},
	} {
		t.Run(c.name+" "+c.engine, func(t *testing.T) {
			sample.Short(t, 5)
			h := newHost(t)
			h.InstallRpmOstree(c.control)
			if notes := arrive(t, h, c.engine); !strings.Contains(notes, c.want) {
				t.Errorf("it does not say %q: %s", c.want, notes)
			}
		})
	}
	h := newHost(t)
	h.InstallRpmOstree(rpmostree.Control{Transaction: []string{"upgrade", "cli", "/"}, BusyCalls: 1 << 30})
	_, err := bootWith(t, h, "auto")
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "upgrade cli") || fault.HintOf(err) == "" {
		t.Errorf("a transaction without end: %v", err)
	}
}

// TestHangingDaemon: a daemon that never answers does no harm if it is not needed. Otherwise
// the first boot fails in bounded time and can be tried again.
func TestHangingDaemon(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a daemon that hangs; not in a short run")
	}
	impatient := func(m *machine.Machine) {
		m.Engine.(*engines.RpmOstree).Limits.Status = 300 * time.Millisecond
	}
	h := newHost(t)
	h.InstallRpmOstree(rpmostree.Control{Faults: []rpmostree.Fault{{Verb: "status", At: "start", Do: "hang"}}})
	_, err := bootWith(t, h, "rpm-ostree", impatient)
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "rpm-ostree did not answer within 300ms") || fault.HintOf(err) == "" {
		t.Errorf("error %v", err)
	}
	expectOld(t, h)
	if staged, err := h.Sysroot().Staged(); err != nil || staged != nil || h.Reboots != 0 {
		t.Errorf("staged %+v, %v, %d reboots", staged, err, h.Reboots)
	}
	notes, err := bootWith(t, h, "auto", impatient)
	if err != nil || !strings.Contains(notes, "going on without rpm-ostree: rpm-ostree did not answer within 300ms") {
		t.Errorf("error %v, notes %s", err, notes)
	}
	h.Boot()
	expectNew(t, h)
}

// TestRebaseInterrupted: rpm-ostree's rebase has a transient failure, or its client is killed,
// at each of its points; or pivot is killed with it, with or without a power cut.
func TestRebaseInterrupted(t *testing.T) {
	for _, at := range []string{"start", "locked", "staged", "end"} {
		passing := rpmostree.Fault{Verb: "rebase", Nth: 1, At: at, Do: "fail", Message: "Bus owner changed, aborting. This likely means the daemon crashed"}
		t.Run("passing failure at "+at, func(t *testing.T) {
			sample.Short(t, 8)
			h := newHost(t)
			h.InstallRpmOstree(rpmostree.Control{Faults: []rpmostree.Fault{passing}})
			arrive(t, h, "rpm-ostree")
		})
		client := rpmostree.Control{Faults: []rpmostree.Fault{{Verb: "rebase", Nth: 1, At: at, Do: "die"}}}
		t.Run("client killed at "+at, func(t *testing.T) {
			sample.Short(t, 8)
			h := newHost(t)
			h.InstallRpmOstree(client)
			made := at == "staged" || at == "end" // what it did counts
			if _, err := bootWith(t, h, "rpm-ostree"); (err == nil) != made {
				t.Fatalf("error %v", err)
			}
			expectOld(t, h)
			if made {
				h.Boot()
				expectNew(t, h)
				return
			}
			arrive(t, h, "rpm-ostree")
		})
		for _, power := range []bool{false, true} {
			t.Run(fmt.Sprintf("killed at %s power cut %v", at, power), func(t *testing.T) {
				sample.Short(t, 8)
				h := newHost(t)
				h.InstallRpmOstree(client)
				if _, err := bootWith(t, h, "rpm-ostree", killedInRebase(h)); err == nil {
					t.Fatal("not noticed")
				}
				if power {
					h.InstallRpmOstree(rpmostree.Control{})
					h.Boot()
				}
				expectOld(t, h)
				arrive(t, h, "rpm-ostree")
			})
		}
	}
}

// killedInRebase makes every command fail once rpm-ostree was asked to rebase.
func killedInRebase(h *hostdir.Host) func(*machine.Machine) {
	killed := error(nil)
	return func(m *machine.Machine) {
		m.Engine.(*engines.RpmOstree).Run = func(ctx context.Context, argv ...string) ([]byte, error) {
			if killed != nil {
				return nil, killed
			}
			if argv[0] == "rpm-ostree" && argv[1] == "rebase" {
				killed = errors.New("killed")
			}
			out, err := h.Run(ctx, argv...)
			return out, errors.Join(err, killed)
		}
	}
}

// TestCommitInterrupted kills pivot during the commit, when the host's staged state is gone
// already, or right after it, with and without a power cut.
func TestCommitInterrupted(t *testing.T) {
	for _, engine := range []string{"ostree", "rpm-ostree"} {
		for _, after := range []bool{false, true} {
			for _, power := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s after %v power cut %v", engine, after, power), func(t *testing.T) {
					sample.Short(t, 8)
					h := newHost(t)
					h.InstallRpmOstree(rpmostree.Control{Version: "2024.5"})
					h.Ostree.Fail = func(call int, now bool) error {
						if h.Ostree.Calls[call-1] == "finalize-staged" && now == after {
							return errors.New("killed")
						}
						return nil
					}
					if _, err := bootWith(t, h, engine); err == nil {
						t.Fatal("not noticed")
					}
					expectOld(t, h)
					h.Ostree.Fail = nil
					for range 3 {
						if power {
							h.Boot()
						}
						power = true
						if _, err := bootWith(t, h, engine); err != nil {
							t.Fatal(err)
						}
						if h.Read(firstboot.EncapsulatedPath) == nil {
							break
						}
					}
					expectNew(t, h)
					expectClosed(t, h)
					if h.Reboots > 1 {
						t.Errorf("%d reboots asked for", h.Reboots)
					}
				})
			}
		}
	}
}

// TestBlockedReboot: while a shutdown is inhibited, the committed machine waits.
func TestBlockedReboot(t *testing.T) {
	h := newHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reboot, tries := h.Reboot, 0
	h.Reboot = func(ctx context.Context) error {
		if tries++; tries < 3 {
			return fault.New(fault.Unavailable, "cannot reboot: blocked by backup")
		}
		cancel()
		return reboot(ctx)
	}
	m, notes := newMachine(t, h), ""
	m.Progress.Emit = func(e pivot.Event) { notes += fmt.Sprintln(e.Err) }
	b := firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath}
	if err := b.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if h.Reboots != 1 || !strings.Contains(notes, "blocked by backup") {
		t.Errorf("%d reboots; told: %s", h.Reboots, notes)
	}
	h.Boot()
	expectNew(t, h)
}

// TestForeignReboot: an orderly reboot between staging and commit makes libostree finalize the
// staged deployment at shutdown. The lock must prevent that, because the new system would
// come up without its files.
func TestForeignReboot(t *testing.T) {
	for _, engine := range []string{"ostree", "auto", "rpm-ostree"} {
		// A release of rpm-ostree that uses the same lock as its libostree.
		for libostree, version := range map[string]string{"": "2024.5", hostdir.LockInState: "2024.6"} {
			t.Run(engine+" "+version, func(t *testing.T) {
				sample.Short(t, 8)
				h := newHost(t)
				h.InstallRpmOstree(rpmostree.Control{Version: version})
				h.Ostree.Version = libostree
				h.Ostree.Fail = func(_ int, after bool) error {
					if !after {
						return nil
					}
					h.Ostree.Fail = nil
					// systemd stops ostree-finalize-staged.service ...
					if _, err := h.Run(t.Context(), "ostree", "admin", "finalize-staged"); err != nil {
						t.Fatal(err)
					}
					// ... and all running programs.
					h.Ostree.Fail = func(int, bool) error { return errors.New("terminated") }
					return errors.New("terminated")
				}
				if _, err := bootWith(t, h, engine); err == nil {
					t.Fatal("not noticed")
				}
				h.Ostree.Fail = nil
				h.Boot()
				expectOld(t, h)
				arrive(t, h, engine)
			})
		}
	}
}
