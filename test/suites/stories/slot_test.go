package stories_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"machine-pivot/day2"
	"machine-pivot/day2/slot"
	"machine-pivot/day2/trial"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/fleetlock"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/registry"
)

// member is a machine of a fleet with one slot.
type member struct {
	*tried
	server *fleetlock.Server
	waited int          // number of sleeps
	wait   func() error // called at each sleep
	clock  time.Time
}

func newMember(t *testing.T) *member {
	m := &member{tried: newTried(t), server: fleetlock.Start(t, 1), clock: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	m.Write("/etc/pivot/firstboot.conf", []byte("health=a.service\nfleetlock="+m.server.URL+"\nfleetlock-id=this\n"))
	m.Write("/etc/systemd/system/"+slot.Unit, []byte("[Service]\n"))
	link := m.Path("/etc/systemd/system/multi-user.target.wants/" + slot.Unit)
	must(t, errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink("/etc/systemd/system/"+slot.Unit, link)))
	return m
}

func (m *member) newMachine() *machine.Machine {
	machine := m.tried.newMachine()
	machine.FleetRoots = x509.NewCertPool()
	machine.FleetRoots.AddCert(m.server.Certificate())
	machine.Progress.Now = func() time.Time { return m.clock }
	machine.Retry.Now = machine.Progress.Now
	machine.Retry.Sleep = func(_ context.Context, d time.Duration) error {
		m.waited++
		m.clock = m.clock.Add(d)
		if m.wait != nil {
			return m.wait()
		}
		return nil
	}
	return machine
}

// rebase moves to the new system, up to the reboot.
func (m *member) rebase() error {
	m.t.Helper()
	machine := m.newMachine()
	ctx := stoppedByReboot(m.t, machine, m.Host)
	r := day2.Rebase{Machine: machine, Image: m.Image, Append: []string{"new=1"}, Reboot: true}
	_, err := r.Run(ctx, day2.RunOptions{})
	return err
}

// release does what the unit that gives a slot back does.
func (m *member) release() error {
	m.t.Helper()
	return slot.Release(m.t.Context(), m.newMachine(), false)
}

// slotOf returns the slot in a journal; nil if there is none.
func slotOf(t *testing.T, r pivot.JournalContent) *slot.Slot {
	t.Helper()
	s, err := slot.In(r)
	must(t, err)
	return s
}

// hold adds a slot to a journal.
func hold(t *testing.T, r *pivot.JournalContent, s slot.Slot) {
	t.Helper()
	must(t, r.SetPart(slot.Name, s, pivot.Part{Stamp: true}))
}

// expectSlot checks in the journal, the stamp, the status and the server whether the machine has
// a slot, and which requests the server got since the last check.
func (m *member) expectSlot(has bool, asked string) {
	m.t.Helper()
	_, stamp := os.Stat(m.Path(pivot.StateDir + "/" + slot.Name))
	machine := m.newMachine()
	s, err := machine.Status(m.t.Context())
	must(m.t, err)
	if r := m.journal(); (slotOf(m.t, r) != nil) != has || (stamp == nil) != has || (s.Features[slot.Name].Data != nil) != has || slices.Contains(m.server.Holders("default"), "this") != has {
		m.t.Errorf("want a slot: %v; the journal has %+v, the status %s, stamp %v, holders %q", has, slotOf(m.t, r), s.Features[slot.Name].Data, stamp, m.server.Holders("default"))
	}
	if got := m.server.Asked(); got != asked {
		m.t.Errorf("the server was asked %q, want %q", got, asked)
	}
}

// TestSlot (P79): a slot is taken after the pull and before the commit, after a wait while others
// have it. It is held over the reboot, and given back when the new system has proven itself.
func TestSlot(t *testing.T) {
	m := newMember(t)
	m.server.Give("default", "another")
	before := m.Ostree.Calls
	m.wait = func() error {
		if !slices.Equal(m.Ostree.Calls, before) {
			t.Errorf("before the slot was granted ostree was called: %q", m.Ostree.Calls)
		}
		r := m.journal()
		if slotOf(t, r) == nil || slotOf(t, r).Held || downloadOf(t, r) == nil || len(downloadOf(t, r).Left) != 1 {
			t.Errorf("while it waits the journal has %+v, %+v", slotOf(t, r), downloadOf(t, r))
		}
		m.Registry.Spoil(registry.Rule{Fault: registry.Status(500)}) // everything is downloaded
		if m.waited == 3 {
			m.server.Take("default")
		}
		return nil
	}
	must(t, m.rebase())
	if m.waited != 3 || m.Reboots != 1 || !strings.Contains(m.notes, "has granted a slot") {
		t.Errorf("waited %d times, %d reboots, notes %s", m.waited, m.Reboots, m.notes)
	}
	m.wait = nil
	m.expectSlot(true, "pre-reboot pre-reboot pre-reboot pre-reboot")
	// Before the reboot the slot stays.
	if err := m.release(); !fault.KindOf(err).Transient() || !strings.Contains(err.Error(), "waits for its reboot") {
		t.Errorf("before the reboot: %v", err)
	}
	m.expectSlot(true, "")
	m.Boot()
	m.health = "activating"
	if err := m.release(); !fault.KindOf(err).Transient() || !strings.Contains(err.Error(), "unit a.service is activating") {
		t.Errorf("before it is healthy: %v", err)
	}
	m.expectSlot(true, "")
	m.health = "active"
	m.server.Down(2)
	must(t, m.release())
	m.expectSlot(false, "steady-state steady-state steady-state")
	must(t, m.release())
	m.expectSlot(false, "")
	// Without a change the server is not asked.
	m.Registry.Spoil()
	must(t, m.rebase())
	m.expectSlot(false, "")
}

// TestSlotKept: a machine that came up without its target keeps its slot until it is repaired,
// or the slot is given back by force.
func TestSlotKept(t *testing.T) {
	m := newMember(t)
	must(t, m.rebase())
	m.expectSlot(true, "pre-reboot")
	m.BootEntry(1) // the old system again
	if err := m.release(); !fault.KindOf(err).Transient() || !strings.Contains(err.Error(), "kernel argument new=1") || !strings.Contains(fault.HintOf(err), "--force") {
		t.Errorf("the old system: %v", err)
	}
	m.expectSlot(true, "")
	must(t, slot.Release(t.Context(), m.newMachine(), true))
	m.expectSlot(false, "steady-state")
}

// TestSlotOfRollback: a rollback from a system that has not proven itself keeps the slot until
// the old system runs.
func TestSlotOfRollback(t *testing.T) {
	m := newMember(t)
	must(t, m.rebase())
	m.Boot()
	m.health = "failed"
	back := day2.Rollback{Machine: m.newMachine(), Reboot: true}
	must(t, back.Run(stoppedByReboot(t, back.Machine, m.Host)))
	m.health = "active"
	if err := m.release(); !fault.KindOf(err).Transient() || !strings.Contains(err.Error(), "waits for its reboot") {
		t.Errorf("before the reboot: %v", err)
	}
	m.expectSlot(true, "pre-reboot")
	m.Boot()
	must(t, m.release())
	m.expectSlot(false, "steady-state")
}

// TestSlotOfFailure: a change that fails before its commit gives the slot back; if the server
// cannot be reached, the unit does that. A change that is committed keeps the slot.
func TestSlotOfFailure(t *testing.T) {
	m := newMember(t)
	m.Ostree.Fail = func(int, bool) error { return errors.New("no") }
	if err := m.rebase(); err == nil {
		t.Fatal("no error")
	}
	m.expectSlot(false, "pre-reboot steady-state")
	m.Ostree.Fail = func(int, bool) error { m.server.Down(1); return errors.New("no") }
	if err := m.rebase(); err == nil || !strings.Contains(m.notes, slot.Unit+" tries it again") {
		t.Errorf("%v, notes %s", err, m.notes)
	}
	m.expectSlot(true, "pre-reboot steady-state")
	must(t, m.release())
	m.expectSlot(false, "steady-state")

	m.Ostree.Fail = nil
	machine := m.newMachine()
	machine.Host.Reboot = func(context.Context) error { return fault.New(fault.Unavailable, "cannot reboot: blocked") }
	r := day2.Rebase{Machine: machine, Image: m.Image, Reboot: true}
	if _, err := r.Run(t.Context(), day2.RunOptions{}); err == nil {
		t.Error("a reboot that is blocked: no error")
	}
	m.expectSlot(true, "pre-reboot")
	back := day2.Rollback{Machine: m.newMachine()}
	must(t, back.Run(t.Context()))
	must(t, m.release())
	m.expectSlot(false, "steady-state")
}

// TestSlotOfCrash: after a run dies with a slot, the unit gives it back if nothing was committed,
// even if the machine is not healthy.
func TestSlotOfCrash(t *testing.T) {
	m := newMember(t)
	must(t, m.rebase())
	m.Boot()
	must(t, m.release())
	m.server.Asked()
	r := m.journal()
	hold(t, &r, slot.Slot{URL: m.server.URL, Group: "default", ID: "this", Boot: "boot-2", Phase: "boot-1"})
	m.server.Give("default", "this")
	must(t, pivot.JournalIn(m.Root).Save(r))
	m.expectSlot(true, "")
	m.health = "failed"
	must(t, m.release())
	m.expectSlot(false, "steady-state")
}

// TestSlotOfTrial: a system on trial keeps its slot until it is confirmed, or until the old one
// runs again.
func TestSlotOfTrial(t *testing.T) {
	for _, kept := range []bool{true, false} {
		m := newMember(t)
		machine := m.newMachine()
		ctx := stoppedByReboot(t, machine, m.Host)
		r := day2.Rebase{Machine: trying(machine, trial.Terms{For: 10 * time.Minute, Confirm: trial.ConfirmByHand}), Image: m.Image, Reboot: true}
		_, err := r.Run(ctx, day2.RunOptions{})
		must(t, err)
		m.expectSlot(true, "pre-reboot")
		m.enter()
		if err := m.release(); !fault.KindOf(err).Transient() || !strings.Contains(err.Error(), "is on trial") {
			t.Errorf("on trial: %v", err)
		}
		if kept {
			must(t, m.confirm())
		} else {
			all, err := m.Sysroot().Deployments()
			must(t, err)
			m.BootEntry(slices.IndexFunc(all, func(d ostree.Deployment) bool { return d.Checksum == m.old }))
			must(t, m.conduct())
		}
		m.expectSlot(true, "")
		must(t, m.release())
		m.expectSlot(false, "steady-state")
	}
}

// TestSlotRefused: no slot is taken if it could not be given back, or if the group is unknown.
func TestSlotRefused(t *testing.T) {
	m := newMember(t)
	must(t, os.Remove(m.Path("/etc/systemd/system/"+slot.Unit)))
	if err := m.rebase(); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "the new system has no /usr/lib/systemd/system/"+slot.Unit) {
		t.Errorf("a system without the unit: %v", err)
	}
	must(t, os.Remove(m.Path("/etc/systemd/system/multi-user.target.wants/"+slot.Unit)))
	if err := m.rebase(); fault.KindOf(err) != fault.Refused || !strings.Contains(fault.HintOf(err), "systemctl enable "+slot.Unit) {
		t.Errorf("the unit is not enabled: %v", err)
	}
	m.expectSlot(false, "")

	m = newMember(t)
	m.Write("/etc/pivot/firstboot.conf", []byte("fleetlock="+m.server.URL+"\nfleetlock-group=none\nfleetlock-id=this\n"))
	if err := m.rebase(); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "unknown_group") || m.waited > 0 {
		t.Errorf("a group that is not known: %v, waited %d times", err, m.waited)
	}
	if m.Reboots > 0 {
		t.Error("it was rebooted")
	}
}

// TestSlotOfStartingServer: a server that does not serve the protocol is asked again for a
// while, and then no longer.
func TestSlotOfStartingServer(t *testing.T) {
	m := newMember(t)
	m.server.Starting(3)
	must(t, m.rebase())
	if m.Reboots != 1 || m.waited != 3 {
		t.Errorf("%d reboots after %d waits", m.Reboots, m.waited)
	}

	m = newMember(t)
	m.server.Starting(1000)
	start := m.clock
	err := m.rebase()
	if waited := m.clock.Sub(start); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "for 10m0s: ") || waited < 10*time.Minute || waited > 13*time.Minute {
		t.Errorf("%v after %v", err, waited)
	}
}

// TestSlotOnlyForReboots: no slot is taken without a reboot, or if the lock is switched off.
func TestSlotOnlyForReboots(t *testing.T) {
	m := newMember(t)
	r := day2.Rebase{Machine: m.newMachine(), Append: []string{"a=1"}}
	_, err := r.Run(t.Context(), day2.RunOptions{})
	must(t, err)
	machine := m.newMachine()
	machine.FleetLock = settings.None
	ctx := stoppedByReboot(t, machine, m.Host)
	r = day2.Rebase{Machine: machine, Append: []string{"a=2"}, Reboot: true}
	_, err = r.Run(ctx, day2.RunOptions{})
	must(t, err)
	m.expectSlot(false, "")
	if m.Reboots != 1 {
		t.Errorf("%d reboots", m.Reboots)
	}
}

// TestSlotOfMachineID: by default the machine has the ID that Zincati would give it.
func TestSlotOfMachineID(t *testing.T) {
	m := newMember(t)
	m.Write("/etc/pivot/firstboot.conf", []byte("fleetlock="+m.server.URL+"\n"))
	m.Write("/etc/machine-id", []byte("3d1219c7c4c5404aaa1f6d2a48adfda4\n"))
	must(t, m.rebase())
	if got := m.server.Holders("default"); len(got) != 1 || got[0] != "975228d46dc94622b9bbe16671e2b58d" { // from systemd-id128
		t.Errorf("holders %q", got)
	}
}

// TestWrongWindow (P78): a window that cannot be read is an error, and the machine does not change.
func TestWrongWindow(t *testing.T) {
	h := hostdir.New(t)
	r := day2.Rebase{Machine: newMachine(t, h), Append: []string{"nosmt"}}
	r.Window = "whenever"
	unlocked := func(run func() error) error { return run() }
	if changed, err := day2.Carry(t.Context(), r.Machine, &r, false, unlocked); fault.KindOf(err) != fault.Usage || changed || !strings.Contains(fmt.Sprint(err), "cannot use the window") {
		t.Errorf("changed %v, %v", changed, err)
	}
	if h.Boot(); strings.Contains(h.Options(), "nosmt") {
		t.Error("the machine changed")
	}
}

// TestWindow (P78): everything is pulled at once. Outside of its window the machine does not
// change, and in the window no registry is asked.
func TestWindow(t *testing.T) {
	m := newMember(t)
	m.Write("/etc/pivot/firstboot.conf", []byte("window=Mon 02:00-04:00 UTC\n"))
	m.wait = func() error {
		m.Registry.Spoil(registry.Rule{Fault: registry.Status(500)})
		if r := m.journal(); r.Phase != pivot.PhaseIdle || downloadOf(t, r) == nil || len(m.Ostree.Calls) > 0 {
			t.Fatalf("while it waits: %s, %+v, calls %q", r.Phase, downloadOf(t, r), m.Ostree.Calls)
		}
		if !m.unlocked() {
			t.Fatal("while it waits no other pivot can work")
		}
		return nil
	}
	changed, err := m.inWindow(nil)
	if opened := time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC); err != nil || !changed || m.clock.Before(opened) || m.clock.Sub(opened) > time.Minute {
		t.Errorf("changed %v at %v, %v", changed, m.clock, err)
	}
	m.Boot()
	if m.Version() != "B.2" || m.Reboots != 1 {
		t.Errorf("version %s, %d reboots", m.Version(), m.Reboots)
	}
	// Without a change there is no wait.
	m.Registry.Spoil()
	m.waited = 0
	if changed, err := m.inWindow(nil); err != nil || changed || m.waited > 0 {
		t.Errorf("the same again: changed %v, waited %d times, %v", changed, m.waited, err)
	}
}

// TestWindowCloses: if no slot is granted while the window is open, the run waits for the next
// window.
func TestWindowCloses(t *testing.T) {
	m := newMember(t)
	m.server.Give("default", "another")
	m.wait = func() error {
		if m.clock.Day() == 24 {
			m.server.Take("default")
		}
		return nil
	}
	changed, err := m.inWindow(func(machine *machine.Machine) { machine.Window = "02:00-04:00 UTC" })
	if opened := time.Date(2026, 11, 24, 2, 0, 0, 0, time.UTC); err != nil || !changed || m.clock.Before(opened) || m.clock.Sub(opened) > 5*time.Minute {
		t.Errorf("changed %v at %v, %v", changed, m.clock, err)
	}
	if asked := strings.Fields(m.server.Asked()); len(asked) < 20 || asked[len(asked)-1] != "pre-reboot" || strings.Count(strings.Join(asked, " "), "steady-state") != 1 {
		t.Errorf("the server was asked %q", asked)
	}
	m.expectSlot(true, "")
}

// TestWindowClosesMeanwhile: the window is looked at again after the wait for a slot, however late it is granted, and
// before the commit begins. Otherwise the slot is given back, and the next window is waited for.
func TestWindowClosesMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		late  func(m *member, machine *machine.Machine)
		asked string
	}{
		"before the slot is granted": {func(m *member, _ *machine.Machine) {
			serve := m.server.Config.Handler
			m.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if m.clock.Day() == 23 {
					m.clock = m.clock.Add(3 * time.Hour)
				}
				serve.ServeHTTP(w, r)
			})
		}, "pre-reboot steady-state pre-reboot"},
		"before the commit": {func(m *member, machine *machine.Machine) {
			machine.FleetLock = settings.None
			engine := machine.Engine.(*rpmostree.Ostree)
			run := engine.Run
			engine.Run = func(ctx context.Context, argv ...string) ([]byte, error) {
				if slices.Contains(argv, "deploy") && m.clock.Day() == 23 {
					m.clock = m.clock.Add(3 * time.Hour)
				}
				return run(ctx, argv...)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMember(t)
			m.wait = func() error {
				if len(m.server.Holders("default")) > 0 || m.Reboots > 0 || m.journal().Phase != pivot.PhaseIdle {
					t.Error("changed outside of the window, or waits with the slot")
				}
				return nil
			}
			changed, err := m.inWindow(func(machine *machine.Machine) {
				machine.Window = "02:00-04:00 UTC"
				c.late(m, machine)
			})
			if opened := time.Date(2026, 11, 24, 2, 0, 0, 0, time.UTC); err != nil || !changed || m.clock.Before(opened) || m.clock.Sub(opened) > 5*time.Minute || m.Reboots != 1 {
				t.Errorf("changed %v at %v, %v, %d reboots", changed, m.clock, err, m.Reboots)
			}
			m.expectSlot(c.asked != "", c.asked)
		})
	}
}

// TestWindowClockSetBack: a clock that was ahead and is corrected does not have the machine changed outside of its
// window, nor wait for the time that the clock has shown.
func TestWindowClockSetBack(t *testing.T) {
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		ahead  time.Duration
		closes bool // the window closes by the wrong clock; it is corrected later, while the next one is waited for
	}{
		"in the window":          {1000 * time.Hour, false},
		"after the window":       {1000 * time.Hour, true},
		"in the next window":     {12 * time.Hour, false},
		"after the next window":  {12 * time.Hour, true},
		"a week, in the window":  {7 * 24 * time.Hour, false},
		"an hour, in the window": {14*time.Hour + 30*time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMember(t)
			m.clock = noon.Add(c.ahead)
			granted, corrected := false, false
			serve := m.server.Config.Handler
			m.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case granted:
				case c.closes:
					m.clock = m.clock.Add(3 * time.Hour)
				default:
					m.clock, corrected = noon, true
				}
				granted = true
				serve.ServeHTTP(w, r)
			})
			m.wait = func() error {
				if granted && !corrected {
					m.clock, corrected = noon, true
				}
				return nil
			}
			changed, err := m.inWindow(func(machine *machine.Machine) { machine.Window = "02:00-04:00 UTC" })
			if opened := time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC); err != nil || !changed || m.clock.Before(opened) || m.clock.Sub(opened) > 5*time.Minute || m.Reboots != 1 {
				t.Errorf("changed %v at %v, %v, %d reboots", changed, m.clock, err, m.Reboots)
			}
			m.expectSlot(true, "pre-reboot steady-state pre-reboot")
		})
	}
}

// TestWindowBeforeEachChange: the window is looked at again right before a change of the running system, and
// before a reboot into what is committed already.
func TestWindowBeforeEachChange(t *testing.T) {
	unlocked := func(run func() error) error { return run() }
	opened := time.Date(2026, 11, 24, 2, 0, 0, 0, time.UTC)
	// late lets the window close when a step begins within it.
	late := func(m *machine.Machine, clock *time.Time, step pivot.Step) {
		emit := m.Progress.Emit
		m.Progress.Emit = func(e pivot.Event) {
			if e.Kind == pivot.EventBegan && e.Step == step && clock.Day() == 23 && clock.Hour() == 2 {
				*clock = clock.Add(3 * time.Hour)
			}
			if emit != nil {
				emit(e)
			}
		}
		m.Window = "02:00-04:00 UTC"
	}
	t.Run("live", func(t *testing.T) {
		c := newChanger(t)
		clock := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		a := c.story(liveV2)
		a.Progress.Now = func() time.Time { return clock }
		a.Retry.Now = a.Progress.Now
		a.Retry.Sleep = func(_ context.Context, d time.Duration) error { clock = clock.Add(d); return nil }
		late(a.Machine, &clock, pivot.StepPreflight)
		c.services.before = func(call string) {
			if clock.Before(opened) || clock.Sub(opened) > 5*time.Minute {
				t.Errorf("%s at %v", call, clock)
			}
		}
		if changed, err := day2.Carry(t.Context(), a.Machine, a, false, unlocked); err != nil || !changed || len(c.calls) == 0 {
			t.Errorf("changed %v at %v, %v, calls %q", changed, clock, err, c.calls)
		}
	})
	t.Run("reboot", func(t *testing.T) {
		m := newMember(t)
		r := day2.Rebase{Machine: m.newMachine(), Image: m.Image}
		if _, err := r.Run(t.Context(), day2.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		changed, err := m.inWindow(func(machine *machine.Machine) {
			machine.FleetLock = settings.None
			late(machine, &m.clock, pivot.StepObserve)
		})
		if err != nil || !changed || m.clock.Before(opened) || m.clock.Sub(opened) > 5*time.Minute || m.Reboots != 1 {
			t.Errorf("changed %v at %v, %v, %d reboots", changed, m.clock, err, m.Reboots)
		}
	})
}

// drifting is a move; something changes before it runs.
type drifting struct {
	day2.Move
	drift func()
}

func (d *drifting) Run(ctx context.Context, prepared day2.RunOptions) (bool, error) {
	if d.drift != nil {
		d.drift()
		d.drift = nil
	}
	return d.Move.Run(ctx, prepared)
}

// TestWindowDrift: a run may find changes only after a download without any. The window is the time for them, too: in
// the running system, the next boot, and the fleet's lock.
func TestWindowDrift(t *testing.T) {
	unlocked := func(run func() error) error { return run() }
	noon, opened := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC)
	t.Run("live", func(t *testing.T) {
		c := newChanger(t)
		clock := noon
		a := c.story(liveV2)
		_, err := a.Run(t.Context(), day2.RunOptions{})
		must(t, err)
		c.calls = nil
		a = c.story(liveV2)
		a.Window = "02:00-04:00 UTC"
		a.Progress.Now = func() time.Time { return clock }
		a.Retry.Now = a.Progress.Now
		a.Retry.Sleep = func(_ context.Context, d time.Duration) error { clock = clock.Add(d); return nil }
		c.services.before = func(call string) {
			if clock.Before(opened) || clock.Sub(opened) > 5*time.Minute {
				t.Errorf("%s at %v", call, clock)
			}
		}
		move := &drifting{a, func() { c.Write("/etc/app/conf", []byte("mine")) }}
		if changed, err := day2.Carry(t.Context(), a.Machine, move, false, unlocked); err != nil || !changed || clock.Before(opened) || len(c.calls) == 0 {
			t.Errorf("changed %v at %v, %v, calls %q", changed, clock, err, c.calls)
		}
	})
	t.Run("reboot", func(t *testing.T) {
		m := newMember(t)
		run := func(drift func()) (bool, error) {
			machine := m.newMachine()
			machine.Window = "02:00-04:00 UTC"
			r := &day2.Rebase{Machine: machine, Append: []string{"a=1"}, Reboot: true}
			return day2.Carry(stoppedByReboot(t, machine, m.Host), machine, &drifting{r, drift}, false, unlocked)
		}
		_, err := run(nil)
		must(t, err)
		m.Boot()
		m.server.Take("default")
		m.server.Asked() // up to here
		m.clock = noon.Add(24 * time.Hour)
		m.wait = func() error {
			if asked := m.server.Asked(); asked != "" || m.Reboots != 1 {
				t.Errorf("before the window: asked %q, %d reboots", asked, m.Reboots)
			}
			return nil
		}
		changed, err := run(func() { m.Write("/proc/cmdline", []byte("quiet\n")) })
		if opened := opened.Add(24 * time.Hour); err != nil || !changed || m.clock.Before(opened) || m.clock.Sub(opened) > 5*time.Minute || m.Reboots != 2 {
			t.Errorf("changed %v at %v, %v, %d reboots", changed, m.clock, err, m.Reboots)
		}
	})
}

// TestWindowStopped: stopping the wait changes nothing and keeps the download for later.
func TestWindowStopped(t *testing.T) {
	m := newMember(t)
	stop := errors.New("stop")
	m.wait = func() error { return stop }
	if _, err := m.inWindow(func(machine *machine.Machine) { machine.Window = "Mon 02:00-04:00 UTC" }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	if r := m.journal(); r.Phase != pivot.PhaseIdle || downloadOf(t, r) == nil || downloadOf(t, r).At.IsZero() || len(m.Ostree.Calls) > 0 || m.Reboots > 0 {
		t.Errorf("%s, %+v, calls %q", r.Phase, downloadOf(t, r), m.Ostree.Calls)
	}
}

// inWindow moves to the new system in the machine's window, up to the reboot.
func (m *member) inWindow(change func(*machine.Machine)) (bool, error) {
	m.t.Helper()
	machine := m.newMachine()
	if change != nil {
		change(machine)
	}
	ctx := stoppedByReboot(m.t, machine, m.Host)
	r := day2.Rebase{Machine: machine, Image: m.Image, Reboot: true}
	return day2.Carry(ctx, machine, &r, false, func(run func() error) error {
		unlock, err := r.Host.Lock()
		must(m.t, err)
		defer func() { must(m.t, unlock()) }()
		return run()
	})
}

// unlocked reports whether another pivot could take the lock.
func (m *member) unlocked() bool {
	unlock, err := m.Host.Host.Lock()
	if err == nil {
		err = unlock()
	}
	return err == nil
}

// TestSlotKilled (P79): killed at any point between download and reboot, the machine gives its slot back. It does so at
// once if nothing is committed, else after it has booted the commit.
func TestSlotKilled(t *testing.T) {
	m := newMember(t)
	n, committed, step := 0, 0, sample.Step(11)
	for dead := true; dead; n += step {
		dead = m.dies(n)
		err := m.release()
		r := m.journal()
		if slotOf(t, r) != nil {
			if committed++; err == nil || !strings.Contains(err.Error(), "waits for its reboot") {
				t.Errorf("killed before effect %d: %v, slot %+v, phase %s", n, err, slotOf(t, r), r.Phase)
			}
			m.Boot()
			err = m.release()
		}
		if err != nil {
			t.Errorf("killed before effect %d: %v", n, err)
		}
		m.server.Asked()
		m.expectSlot(false, "")
		m.Boot()
	}
	if n < 20 || committed*step < 2 {
		t.Errorf("it died %d times, %d of them after the commit", n, committed)
	}
}

// dies changes the kernel arguments on a disk on which the process dies after some effects on
// the journal. It reports whether the process died.
func (m *member) dies(effects int) (dead bool) {
	m.t.Helper()
	defer recoverDeath(&dead)
	machine := m.newMachine()
	number := strconv.Itoa(effects)
	machine.Progress.Journal.Disk = dying{left: &effects}
	ctx := stoppedByReboot(m.t, machine, m.Host)
	r := day2.Rebase{Machine: machine, Append: []string{"n=" + number}, Reboot: true}
	_, err := r.Run(ctx, day2.RunOptions{})
	must(m.t, err)
	return false
}

// TestSlotLeavesDownload: another change does not drop an earlier download, and does not leave
// behind what it pulled before it took a slot.
func TestSlotLeavesDownload(t *testing.T) {
	m := newMember(t)
	later := day2.Apply{Machine: m.newMachine(), Config: day2.Config{File: "mc.yaml", Data: []byte("metadata: {name: a}\nspec: {kernelArguments: [later=1]}\n")}}
	_, err := later.Download(t.Context())
	must(t, err)
	must(t, m.rebase())
	r := m.journal()
	if d := downloadOf(t, r); d == nil || d.At.IsZero() || d.MachineConfig == "" || len(d.Left) > 0 || r.Target.Image.Commit != m.Commit {
		t.Errorf("downloaded %+v", downloadOf(t, r))
	}
	if kept, err := filepath.Glob(m.Path("/sysroot/ostree/repo/refs/heads/pivot/*")); err != nil || len(kept) > 0 {
		t.Errorf("refs are left: %q, %v", kept, err)
	}
	m.server.Asked()
}
