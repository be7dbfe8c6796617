package stories_test

import (
	"strings"
	"testing"

	"machine-pivot/day2/trial"
	"machine-pivot/firstboot"
	"machine-pivot/internal/machine"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

const noSpace = "no space left on device"

// expectClosedByFile checks that a first boot has ended on a disk that is full: only the closed file says so.
func expectClosedByFile(t *testing.T, h *hostdir.Host, notes string) {
	t.Helper()
	if h.Read(firstboot.EncapsulatedPath) != nil || h.Read(firstboot.EncapsulatedPath+".bak") == nil {
		t.Error("the first boot is not closed")
	}
	if !strings.Contains(notes, noSpace) {
		t.Errorf("it does not say that it has no record: %s", notes)
	}
	if r, err := pivot.JournalIn(h.Root).Load(); err != nil || closingOf(t, r) != nil {
		t.Errorf("the journal has %+v, %v", r.Features, err)
	}
}

// TestFirstBootProvenWithoutTheJournal: a machine that is what its first boot asks for is proven, and its first
// boot closed, also if the disk with the journal is full. The closed file in its /etc is the record: the machine stays
// in its old system if somebody boots that, and does not if a commit only did not hold.
func TestFirstBootProvenWithoutTheJournal(t *testing.T) {
	h := newHost(t)
	must(t, boot(t, h))
	h.Boot()
	notes, err := bootWith(t, h, "ostree", fill)
	must(t, err)
	expectNew(t, h)
	expectClosedByFile(t, h, notes)
	expectStatusAt(t, h, pivot.PhaseDone)

	h.Boot()
	must(t, boot(t, h))
	expectStatusAt(t, h, pivot.PhaseDone)
	h.BootEntry(1) // the boot menu
	expectHeld(t, h, 1)
	expectAgain(t, h)
}

// TestHeldWithoutTheJournal: a machine that was rolled back stays as it is, and its first boot is closed there,
// also if the disk with the journal is full.
func TestHeldWithoutTheJournal(t *testing.T) {
	h := arrived(t)
	h.BootEntry(1)
	notes, err := bootWith(t, h, "ostree", fill)
	must(t, err)
	expectOld(t, h)
	if h.Read(firstboot.EncapsulatedPath) != nil || !strings.Contains(notes, noSpace) || !strings.Contains(notes, "went back") || h.Reboots != 1 {
		t.Errorf("%d reboots, notes %s", h.Reboots, notes)
	}
}

// TestFallbackProvenWithoutTheJournal: a system that was started once is kept, too. What was proven is not left for the
// old one at the next boot, and the journal says so as soon as it can.
func TestFallbackProvenWithoutTheJournal(t *testing.T) {
	proveOnFullDisk := func(t *testing.T, h *tried) {
		m := h.newMachine()
		fill(m)
		b := firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath}
		must(t, b.Run(stoppedByReboot(t, m, h.Host)))
		if b.Result.Outcome != machine.OutcomeClosed {
			t.Errorf("outcome %s", b.Result.Outcome)
		}
	}
	for name, prepare := range map[string]func(*tried){
		"from the start": func(*tried) {},
		"once the journal has the confirmation": func(h *tried) {
			h.change(func(tried *trial.Trial) { tried.Confirmed = true })
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newGuarded(t)
			must(t, h.bootGuarded())
			h.enterNew()
			must(t, h.conduct())
			prepare(h)
			proveOnFullDisk(t, h)
			expectClosedByFile(t, h.Host, h.notes)
			h.expect("B A", pivot.PhaseDone, true)

			h.Boot()
			h.expect("B A", pivot.PhaseDone, true)
			must(t, h.conduct())
			h.expect("B A", pivot.PhaseDone, false)
			if r := h.journal(); r.Phase != pivot.PhaseDone || closingOf(t, r) == nil || !strings.Contains(closingOf(t, r).Deployment, h.Commit) || h.Reboots != 1 {
				t.Errorf("the journal says %s, closed %+v, %d reboots", r.Phase, closingOf(t, r), h.Reboots)
			}
		})
	}
}

// TestFallbackNotProvenByAnotherFile: a closed file that was there before the system was to be proven is no
// record of that.
func TestFallbackNotProvenByAnotherFile(t *testing.T) {
	h := newGuarded(t)
	h.Write(firstboot.EncapsulatedPath+".bak", []byte("{}"))
	must(t, h.bootGuarded())
	h.enterNew()
	must(t, h.conduct())
	h.expect("A B", pivot.PhaseCommitted, true)
}

// TestGiveUpWithoutTheJournal: a first boot that gives up says why also if the disk with the journal is full.
func TestGiveUpWithoutTheJournal(t *testing.T) {
	h := newHost(t)
	for range pivot.MaxAttempts {
		must(t, boot(t, h))
		h.BootEntry(1)
	}
	_, err := bootWith(t, h, "ostree", fill)
	if err == nil || !strings.Contains(err.Error(), "still comes up without the target") {
		t.Errorf("gives up with %v", err)
	}
}

// closingOf returns how the first boot ended, by a journal; nil if it has not.
func closingOf(t *testing.T, r pivot.JournalContent) *machine.Closing {
	t.Helper()
	closing, err := machine.ClosingIn(r)
	must(t, err)
	return closing
}
