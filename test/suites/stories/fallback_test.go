package stories_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/day2"
	"machine-pivot/day2/trial"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	systemdunits "machine-pivot/systemd-units"
)

// newGuarded is newTried for a machine with the setting fallback=auto, a boot loader that starts an entry once, and an
// open first boot.
func newGuarded(t *testing.T) *tried {
	t.Helper()
	h := newTried(t)
	h.oneShot()
	h.Write(settings.Path, []byte("fallback=auto\n"))
	unit, err := systemdunits.Files.ReadFile(systemdunits.FirstBoot)
	must(t, err)
	h.Write(host.UnitInEtc(systemdunits.FirstBoot), unit)
	ask(t, h.Host)
	return h
}

// bootGuarded runs the first boot in the system that runs, up to its end or to its reboot.
func (h *tried) bootGuarded() error {
	h.t.Helper()
	h.asked, h.notes = nil, ""
	b := firstboot.FirstBoot{Machine: h.newMachine(), File: firstboot.EncapsulatedPath}
	ctx := stoppedByReboot(h.t, b.Machine, h.Host)
	return b.Run(ctx)
}

// enterNew boots the newest deployment of the new system, as the boot loader does that was told to
// start it once.
func (h *tried) enterNew() {
	h.t.Helper()
	all, err := h.Sysroot().Deployments()
	must(h.t, err)
	i := slices.IndexFunc(all, func(d ostree.Deployment) bool { return d.Checksum != h.old })
	if i < 1 {
		h.t.Fatalf("the new system is boot entry %d, and the first is the default", i)
	}
	h.BootEntry(i)
}

// expectOnce checks that the last run has asked the boot loader to start the new system once, and has
// rebooted.
func (h *tried) expectOnce(reboots int) {
	h.t.Helper()
	if len(h.asked) != 1 || !strings.HasPrefix(h.asked[0], "bootctl set-oneshot ostree-") || h.Reboots != reboots {
		h.t.Errorf("asked %q, %d reboots, want %d", h.asked, h.Reboots, reboots)
	}
}

// TestFallbackOfFirstBoot (P59): with the setting fallback=auto, the old system stays the default until the first boot
// has proven the new one. Then that is the default, and the first boot is closed.
func TestFallbackOfFirstBoot(t *testing.T) {
	h := newGuarded(t)
	must(t, h.bootGuarded())
	h.expectOnce(1)
	h.expect("A B", pivot.PhaseCommitted, true)
	h.enterNew()
	if err := day2Rebase(h); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "its first boot is not complete yet") {
		t.Errorf("changed by hand: %v", err)
	}
	if err := h.confirm(); fault.KindOf(err) != fault.Refused {
		t.Errorf("confirmed by hand: %v", err)
	}
	rollback := day2.Rollback{Machine: h.newMachine()}
	if _, _, err := rollback.Preview(t.Context()); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "its first boot is not complete yet") {
		t.Errorf("where a rollback leads: %v", err)
	}
	must(t, h.bootGuarded())
	h.expect("B A", pivot.PhaseDone, false)
	if v := h.Version(); v != "B.2" {
		t.Errorf("version %s runs", v)
	}
	if r := h.journal(); r.Held() || closingOf(t, r) == nil || h.Reboots != 1 {
		t.Errorf("the journal says %v, closed %+v, %d reboots", r.Features, closingOf(t, r), h.Reboots)
	}
}

func day2Rebase(h *tried) error {
	r := day2.Rebase{Machine: h.newMachine(), Append: []string{"x"}}
	_, err := r.Run(h.t.Context(), day2.RunOptions{})
	return err
}

// TestFallbackDeadKernel (P59): a power cycle after a dead kernel boots the old system, which tries
// again. After the last attempt it stays.
func TestFallbackDeadKernel(t *testing.T) {
	h := newGuarded(t)
	for attempt := 1; attempt <= pivot.MaxAttempts; attempt++ {
		must(t, h.bootGuarded())
		h.expectOnce(attempt)
		h.expect("A B", pivot.PhaseCommitted, true)
		if r := h.journal(); r.Attempt != attempt || attempt > 1 && !strings.Contains(h.notes, "the new system was not proven: it never came up") {
			t.Errorf("attempt %d, want %d, notes %s", r.Attempt, attempt, h.notes)
		}
		h.Boot()
	}
	if err := h.bootGuarded(); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "after 3 attempts it still comes up without the target") {
		t.Errorf("after the last attempt: %v", err)
	}
	h.expect("A B", pivot.PhaseFailed, false)
	if h.Reboots != pivot.MaxAttempts {
		t.Errorf("%d reboots", h.Reboots)
	}
}

// TestFallbackComesUpAsTheDefault: a new system that boots as the default, after a power cut right after the commit,
// first makes the old one the default. pivot-trial.service does that, or else its first boot, which may fail later. So
// a power cycle leads back.
func TestFallbackComesUpAsTheDefault(t *testing.T) {
	for name, unit := range map[string]bool{"with pivot-trial.service": true, "with the first boot only": false} {
		t.Run(name, func(t *testing.T) {
			h := newGuarded(t)
			must(t, h.bootGuarded())
			_, err := h.Run(t.Context(), "ostree", "admin", "set-default", "1")
			must(t, err)
			h.Boot()
			h.expect("B A", pivot.PhaseCommitted, true)
			if unit {
				must(t, h.conduct())
			} else {
				asked, err := os.ReadFile(h.Path(machineconfig.CommittedPath))
				must(t, err)
				h.Write(machineconfig.CommittedPath, []byte("{"))
				if err := h.bootGuarded(); fault.KindOf(err) != fault.BadInput {
					t.Errorf("a first boot that fails: %v", err)
				}
				h.Write(machineconfig.CommittedPath, asked)
			}
			h.expect("A B", pivot.PhaseCommitted, true)
			must(t, h.bootGuarded())
			h.expect("B A", pivot.PhaseDone, false)
			if h.Reboots != 1 {
				t.Errorf("%d reboots", h.Reboots)
			}
		})
	}
}

// TestFallbackClosedByTheFirstBoot: in the old system, pivot-trial.service leaves the attempt to the first boot,
// which counts it.
func TestFallbackClosedByTheFirstBoot(t *testing.T) {
	h := newGuarded(t)
	must(t, h.bootGuarded())
	h.Boot()
	must(t, h.conduct())
	h.expect("A B", pivot.PhaseFailed, true)
	must(t, h.bootGuarded())
	h.expectOnce(2)
	if r := h.journal(); r.Attempt != 2 {
		t.Errorf("attempt %d", r.Attempt)
	}
}

// TestFallbackRebootedBefore (P59): a reboot before the new system was to be entered uses up no
// attempt.
func TestFallbackRebootedBefore(t *testing.T) {
	h := newGuarded(t)
	must(t, h.bootGuarded())
	h.change(func(tried *trial.Trial) { tried.Entered = false })
	h.Boot()
	must(t, h.bootGuarded())
	if r := h.journal(); r.Attempt != 1 || !strings.Contains(h.notes, "rebooted before it was to be entered") {
		t.Errorf("attempt %d, notes %s", r.Attempt, h.notes)
	}
	h.expectOnce(2)
}

// TestFallbackRebootRefused: a reboot that is refused enters nothing, so however often that happens, the machine
// reboots into the old system without a used attempt.
func TestFallbackRebootRefused(t *testing.T) {
	h := newGuarded(t)
	for range pivot.MaxAttempts + 1 {
		h.notes = ""
		b := firstboot.FirstBoot{Machine: h.newMachine(), File: firstboot.EncapsulatedPath}
		b.Host.Reboot = func(context.Context) error { return fault.New(fault.Unavailable, "blocked by dnf") }
		if err := b.Run(t.Context()); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("error %v", err)
		}
		if r := h.journal(); r.Attempt != 1 || r.Phase != pivot.PhaseCommitted || !r.Held() || h.trial().Entered {
			t.Errorf("%s, attempt %d, trial %+v", r.Phase, r.Attempt, h.trial())
		}
		h.Boot()
	}
	must(t, h.bootGuarded())
	h.expectOnce(1)
	if r := h.journal(); r.Attempt != 1 || !strings.Contains(h.notes, "rebooted before it was to be entered") {
		t.Errorf("attempt %d, notes %s", r.Attempt, h.notes)
	}
}

// TestFallbackNotTheTarget (P59): a new system that comes up and is not what was asked for is left for
// the old one, with the reason.
func TestFallbackNotTheTarget(t *testing.T) {
	h := newGuarded(t)
	must(t, h.bootGuarded())
	h.enterNew()
	h.Write("/proc/cmdline", []byte("quiet\n"))
	must(t, h.bootGuarded())
	if h.Reboots != 2 || !strings.Contains(h.notes, "the new system is not what the MachineConfig asks for") {
		t.Errorf("%d reboots, notes %s", h.Reboots, h.notes)
	}
	h.expect("A B", pivot.PhaseCommitted, true)
	h.Boot()
	must(t, h.bootGuarded())
	h.expectOnce(3)
	if r := h.journal(); r.Attempt != 2 || !strings.Contains(h.notes, "nosmt") {
		t.Errorf("attempt %d, notes %s", r.Attempt, h.notes)
	}
}

// TestFallbackReturnsWithoutTheJournal: a first boot returns from a system that is not what was asked for also if the
// disk with the journal is full. The old system counts the attempt.
func TestFallbackReturnsWithoutTheJournal(t *testing.T) {
	h := newGuarded(t)
	must(t, h.bootGuarded())
	h.enterNew()
	h.Write("/proc/cmdline", []byte("quiet\n"))
	b := firstboot.FirstBoot{Machine: h.newMachine(), File: firstboot.EncapsulatedPath}
	fill(b.Machine)
	must(t, b.Run(stoppedByReboot(t, b.Machine, h.Host)))
	if h.Reboots != 2 || !strings.Contains(h.notes, "the new system is not what the MachineConfig asks for") || !strings.Contains(h.notes, "no space left on device") {
		t.Errorf("%d reboots, notes %s", h.Reboots, h.notes)
	}
	h.Boot()
	must(t, h.bootGuarded())
	h.expectOnce(3)
	if r := h.journal(); r.Attempt != 2 {
		t.Errorf("attempt %d", r.Attempt)
	}
}

// TestFallbackAgain: in the new system that is to be proven, nothing is to be opened again: --again proves and
// keeps it as well, and leaves nothing in the boot loader.
func TestFallbackAgain(t *testing.T) {
	h := newGuarded(t)
	must(t, h.bootGuarded())
	h.enterNew()
	b := firstboot.FirstBoot{Machine: h.newMachine(), File: firstboot.EncapsulatedPath, Again: true}
	must(t, b.Run(t.Context()))
	h.expect("B A", pivot.PhaseDone, false)
	if r := h.journal(); closingOf(t, r) == nil || r.Attempt != 1 {
		t.Errorf("closed %+v, attempt %d", closingOf(t, r), r.Attempt)
	}
	h.Boot()
	must(t, h.bootGuarded())
	h.expect("B A", pivot.PhaseDone, false)
}

// TestFallbackNoReboot: without a reboot, a new system that is not what was asked for makes the old one the
// default, and says what it lacks.
func TestFallbackNoReboot(t *testing.T) {
	h := newGuarded(t)
	must(t, h.bootGuarded())
	h.enterNew()
	_, err := h.Run(t.Context(), "ostree", "admin", "set-default", "1")
	must(t, err)
	h.Write("/proc/cmdline", []byte("quiet\n"))
	m := h.newMachine()
	ctx := stoppedByReboot(t, m, h.Host)
	b := firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath, NoReboot: true}
	if err := b.Run(ctx); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "nosmt") || h.Reboots != 1 {
		t.Errorf("%v, %d reboots", err, h.Reboots)
	}
	h.expect("A B", pivot.PhaseCommitted, true)
	h.Boot()
	must(t, h.bootGuarded())
	if r := h.journal(); r.Attempt != 2 || !strings.Contains(h.notes, "nosmt") {
		t.Errorf("attempt %d, notes %s", r.Attempt, h.notes)
	}
}

// stage stages a deployment, as another program does.
func (h *tried) stage(flags ...string) {
	h.t.Helper()
	origin := filepath.Join(h.t.TempDir(), "origin")
	must(h.t, os.WriteFile(origin, []byte("[origin]\nrefspec=os\n"), 0o644))
	argv := append([]string{"ostree", "admin", "deploy", "--stage", "--os=os", "--origin-file=" + origin, "--karg-append=root=LABEL=root"}, flags...)
	_, err := h.Run(h.t.Context(), append(argv, h.Commit)...)
	must(h.t, err)
}

// TestFallbackWithSomethingStaged: a system is not confirmed as long as something that somebody has staged would be the
// next boot. Its first boot tries again; what is locked holds nothing up.
func TestFallbackWithSomethingStaged(t *testing.T) {
	h := newGuarded(t)
	must(t, h.bootGuarded())
	h.enterNew()
	h.stage()
	if err := h.bootGuarded(); fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "is staged, which would be the next boot") {
		t.Errorf("kept with something staged: %v", err)
	}
	if r := h.journal(); !r.Held() || h.trial().Confirmed || r.Phase != pivot.PhaseCommitted {
		t.Errorf("the journal says %s, trial %+v", r.Phase, h.trial())
	}
	h.change(func(tried *trial.Trial) { tried.Confirmed, tried.New = true, "" }) // staged after the confirmation
	if err := h.bootGuarded(); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("made the default with something staged: %v", err)
	}
	_, err := h.Run(t.Context(), "ostree", "admin", "undeploy", "0")
	must(t, err)
	h.stage("--lock-finalization")
	must(t, h.bootGuarded())
	h.expect("B A", pivot.PhaseDone, false)
}

// TestTryWithSomethingStaged: neither the unit nor an administrator confirms a system on trial while something is
// staged, also if that was staged after the look at the system.
func TestTryWithSomethingStaged(t *testing.T) {
	h := newTried(t)
	h.oneShot()
	try := tenMinutes
	try.Confirm = trial.ConfirmAuto
	must(t, h.try(try))
	h.enter()
	h.check = func() { h.stage(); h.check = nil }
	m := trial.Program{Machine: h.newMachine()}
	looks := 0
	m.Sleep = func(context.Context, time.Duration) error {
		looks++
		if tried := h.trial(); tried == nil || tried.Confirmed {
			t.Errorf("confirmed with something staged: %+v", tried)
		}
		if err := h.confirm(); fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "is staged") {
			t.Errorf("confirmed by hand with something staged: %v", err)
		}
		_, err := h.Run(t.Context(), "ostree", "admin", "undeploy", "0")
		return err
	}
	must(t, m.Run(stoppedByReboot(t, m.Machine, h.Host)))
	h.expect("B A", pivot.PhaseDone, false)
	if looks != 1 {
		t.Errorf("%d looks that kept nothing", looks)
	}
}

// TestFallbackCannot (P59): where a fallback is not possible, the commit is as without the setting, and
// a warning says why.
func TestFallbackCannot(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*tried)
		why   string
	}{
		"the boot loader": {func(h *tried) {
			h.Write(loaderFeatures, nil)
		}, "no boot loader is known here that starts an entry once"},
		"the new system": {func(h *tried) { must(h.t, os.Remove(h.Path("/etc/systemd/system/pivot-firstboot.service"))) }, "the new image does not contain pivot (no /usr/lib/systemd/system/pivot-firstboot.service)"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newGuarded(t)
			c.spoil(h)
			must(t, h.bootGuarded())
			h.expect("B A", pivot.PhaseCommitted, false)
			if h.Reboots != 1 || len(h.asked) != 0 || !strings.Contains(h.notes, c.why) {
				t.Errorf("%d reboots, asked %q, notes %s", h.Reboots, h.asked, h.notes)
			}
			h.Boot()
			must(t, h.bootGuarded())
			h.expect("B A", pivot.PhaseDone, false)
		})
	}
}

// TestFallbackByHand (P59): with the setting, a rebase with its reboot is a trial that confirms itself.
// A rebase without its reboot is not.
func TestFallbackByHand(t *testing.T) {
	for name, reboot := range map[string]bool{"with its reboot": true, "without its reboot": false} {
		t.Run(name, func(t *testing.T) {
			h := newTried(t)
			h.oneShot()
			h.Write(settings.Path, []byte("fallback=auto\n"))
			m := h.newMachine()
			ctx := stoppedByReboot(t, m, h.Host)
			r := day2.Rebase{Machine: m, Image: h.Image, Reboot: reboot}
			_, err := r.Run(ctx, day2.RunOptions{})
			must(t, err)
			if !reboot {
				h.expect("B A", pivot.PhaseCommitted, false)
				return
			}
			h.expectOnce(1)
			h.expect("A B", pivot.PhaseCommitted, true)
			h.enter()
			h.up = time.Minute
			must(t, h.conduct())
			h.expect("B A", pivot.PhaseDone, false)
		})
	}
}
