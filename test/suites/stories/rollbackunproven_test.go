package stories_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"machine-pivot/day2"
	"machine-pivot/day2/trial"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

func (h *tried) rollback() error {
	h.t.Helper()
	return (&day2.Rollback{Machine: h.newMachine()}).Run(h.t.Context())
}

// TestRollbackNeverIntoUnproven: a rollback while a trial waits for its reboot ends the trial, and the running system
// stays the default. Neither a second rollback nor a first boot then starts what nothing has proven.
func TestRollbackNeverIntoUnproven(t *testing.T) {
	for name, c := range map[string]struct {
		make   func(t *testing.T) *tried
		commit func(t *testing.T, h *tried)
	}{
		"by hand": {newTried, func(t *testing.T, h *tried) { must(t, h.try(tenMinutes)) }},
		"by the setting": {newTried, func(t *testing.T, h *tried) {
			h.Write(settings.Path, []byte("fallback=auto\n"))
			m := h.newMachine()
			r := day2.Rebase{Machine: m, Image: h.Image, Reboot: true}
			_, err := r.Run(stoppedByReboot(t, m, h.Host), day2.RunOptions{})
			must(t, err)
		}},
		"killed before the old system is the default": {newTried, func(t *testing.T, h *tried) {
			if err := h.tryKilled(); err == nil {
				t.Error("was not killed")
			}
		}},
		"killed before the journal has its ID": {newTried, func(t *testing.T, h *tried) {
			_ = h.tryKilled()
			h.change(func(tried *trial.Trial) { tried.New = "" })
		}},
		"the journal cannot be written after the commit": {newTried, func(t *testing.T, h *tried) {
			if err := h.tryUnjournaled(); err == nil {
				t.Error("the journal was written")
			}
			h.expect("A B", pivot.PhaseCommitted, true)
		}},
		"the same, and other kernel arguments only": {newTried, func(t *testing.T, h *tried) {
			h.Image = "" // the new deployment has the commit of the old one
			_ = h.tryUnjournaled()
		}},
		"a first boot": {newGuarded, func(t *testing.T, h *tried) { must(t, h.bootGuarded()) }},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.make(t)
			h.oneShot()
			c.commit(t, h)
			entries := map[bool]string{true: "A A", false: "A B"}[h.Image == ""]
			must(t, h.rollback())
			h.expect(entries, pivot.PhaseDone, false)
			h.expectRefused()
			h.Boot()
			reboots := h.Reboots
			must(t, h.bootGuarded())
			h.expect(entries, pivot.PhaseDone, false)
			h.expectRefused()
			if h.Reboots != reboots {
				t.Error("the first boot goes forward again")
			}
		})
	}
}

// tryKilled is try up to a kill between the commit and the step that makes the old system the default again.
func (h *tried) tryKilled() error {
	m := h.newMachine()
	run := m.Host.Run
	m.Host.Run = func(ctx context.Context, argv ...string) ([]byte, error) {
		if strings.Contains(strings.Join(argv, " "), "set-default") {
			return nil, errors.New("killed")
		}
		return run(ctx, argv...)
	}
	r := day2.Rebase{Machine: trying(m, tenMinutes), Image: h.Image, Reboot: true}
	_, err := r.Run(stoppedByReboot(h.t, m, h.Host), day2.RunOptions{})
	return err
}

// fullOnceCommitted is a disk that becomes full when the journal says that a system is committed.
type fullOnceCommitted struct {
	hostfiles.Disk
	h *tried
}

func (f fullOnceCommitted) Write(path string, content []byte, mode fs.FileMode) error {
	if f.h.journal().Phase == pivot.PhaseCommitted {
		return syscall.ENOSPC
	}
	return f.Disk.Write(path, content, mode)
}

// tryUnjournaled is try on a disk that becomes full with the commit.
func (h *tried) tryUnjournaled() error {
	m := h.newMachine()
	m.Progress.Journal.Disk = fullOnceCommitted{m.Progress.Journal.Disk, h}
	r := day2.Rebase{Machine: trying(m, tenMinutes), Image: h.Image, Append: []string{"new=1"}, Reboot: true}
	_, err := r.Run(stoppedByReboot(h.t, m, h.Host), day2.RunOptions{})
	return err
}

// TestTryUnjournaled: a trial's deployment is found and removed also if the journal could not be written since its
// commit, by the command, the new system, or the trial's end.
func TestTryUnjournaled(t *testing.T) {
	h := newTried(t)
	h.oneShot()
	if err := h.tryUnjournaled(); err == nil {
		t.Error("the journal was written")
	}
	h.expect("A B", pivot.PhaseCommitted, true)
	h.enter()
	d := trial.Program{Machine: h.newMachine()}
	fill(d.Machine)
	d.Sleep = func(context.Context, time.Duration) error { h.up += 5 * time.Minute; return nil }
	must(t, d.Run(stoppedByReboot(t, d.Machine, h.Host)))
	h.Boot()
	d = trial.Program{Machine: h.newMachine()}
	fill(d.Machine)
	if err := d.Run(t.Context()); err == nil {
		t.Error("the trial is closed without the journal")
	}
	h.expect("A B", pivot.PhaseFailed, true)
	must(t, h.conduct())
	h.expect("A", pivot.PhaseFailed, false)
}

// expectRefused checks that a rollback is refused because of what nothing has proven.
func (h *tried) expectRefused() {
	h.t.Helper()
	if err := h.rollback(); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "was never proven") {
		h.t.Errorf("a rollback into what nothing has proven: %v", err)
	}
}

// TestRollbackAfterAttempts: what a first boot has tried and not proven stays for its next attempt; a rollback
// does not lead there, neither between the attempts nor after the last one. The first boot still can.
func TestRollbackAfterAttempts(t *testing.T) {
	h := newGuarded(t)
	for range pivot.MaxAttempts {
		must(t, h.bootGuarded())
		h.Boot()
		h.expectRefused()
	}
	if err := h.bootGuarded(); fault.KindOf(err) != fault.Refused {
		t.Errorf("after the last attempt: %v", err)
	}
	h.expectRefused()
	h.expect("A B", pivot.PhaseFailed, false)
	m := h.newMachine()
	again := firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath, Again: true}
	must(t, again.Run(stoppedByReboot(t, m, h.Host)))
	h.enterNew()
	must(t, h.bootGuarded())
	h.expect("B A", pivot.PhaseDone, false)
	must(t, h.rollback())
	h.Boot()
	must(t, h.rollback()) // the system that was proven
	h.Boot()
	h.expect("B A", pivot.PhaseDone, false)
}

// TestRollbackOfPendingFirstBoot: a rollback of a first boot that waits for its reboot closes the first boot in the
// running system, which stays: the next boot does not commit it again. --again starts the new system.
func TestRollbackOfPendingFirstBoot(t *testing.T) {
	h := newHost(t)
	must(t, run(t, h, firstboot.FirstBoot{NoReboot: true}))
	must(t, rollback(t, h))
	h.Boot()
	expectOld(t, h)
	expectClosed(t, h)
	reboots := h.Reboots
	must(t, boot(t, h))
	expectOld(t, h)
	expectStatusAt(t, h, pivot.PhaseDone)
	if h.Reboots != reboots {
		t.Error("the first boot goes forward again")
	}
	must(t, run(t, h, firstboot.FirstBoot{Again: true}))
	h.Boot()
	must(t, boot(t, h))
	expectNew(t, h)
}
