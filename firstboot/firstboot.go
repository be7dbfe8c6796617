// Package firstboot implements the ways in which a machine moves to another system: its
// first boot (this file, top to bottom), an administrator's pivot by hand (rebase.go), and
// another MachineConfig (apply.go). All of them run the same few steps on the same parts.
package firstboot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/mcfile"
	"machine-pivot/pivot"
)

// EncapsulatedPath is where Ignition leaves the encapsulated MachineConfig. The first
// boot is open as long as this file exists.
const EncapsulatedPath = mcfile.Path

// closedSuffix is appended to the file's name when the first boot is closed.
const closedSuffix = ".bak"

// FirstBoot is one attempt at the first boot of a machine.
type FirstBoot struct {
	Machine
	File     string // the encapsulated MachineConfig
	NoReboot bool   // commit, but do not reboot
	Again    bool   // go forward although the first boot was completed, or given up, before

	request string // the file's digest, set by Read
}

// Run brings the machine to what the encapsulated MachineConfig asks for. It
// ends in one of three ways: the machine is proven to be at its target and the
// first boot is closed; the target is committed and the machine reboots; or Run
// returns an error that says why neither was possible.
//
// In an initramfs there is a fourth: Run steps aside, and the started system does
// the same work (place.go).
//
// Run changes nothing if the first boot is switched off or if there is no file. If the
// machine was rolled back to this system after its first boot, Run leaves it as it is
// (takenback.go).
func (b *FirstBoot) Run(ctx context.Context) error {
	settings, err := b.settings()
	if b.noteIfOff(settings, err) {
		return nil
	}
	if err == nil {
		err = b.explainStop(ctx, b.attempt(ctx, settings))
	}
	aside, err := b.placeOrDefault().Conclude(err, settings.OnFailure)
	if aside != nil {
		b.Progress.Note(aside.Error())
		b.runResult().Outcome = OutcomeAside
	}
	b.Progress.FirstBoot = b.isMachines()
	b.Progress.End(err)
	return err
}

// isMachines reports whether a failure of this run is the machine's, as its first boot is not
// over.
func (b *FirstBoot) isMachines() bool {
	open, err := b.Host.Has(EncapsulatedPath)
	unsettled := []pivot.Phase{"", pivot.PhaseIdle, pivot.PhaseApplying, pivot.PhaseInterrupted, pivot.PhaseFailed}
	return !b.Again && (open || err != nil || slices.Contains(unsettled, b.Progress.Record.Phase))
}

// Off reports whether the administrator has switched the first boot off, and notes it in
// the progress if so. Run then does nothing. Callers check this before steps that can fail,
// such as taking the lock, so that a disabled first boot never blocks the boot.
func (b *FirstBoot) Off() bool { return b.noteIfOff(b.settings()) }

func (b *FirstBoot) noteIfOff(settings host.Settings, err error) bool {
	if settings.Mode != host.ModeOff {
		return false
	}
	for _, err := range []error{err, b.open()} { // the status includes the journal
		if err != nil {
			b.Progress.Note("warning: " + err.Error())
		}
	}
	b.Progress.Note("nothing done: the first boot is switched off, by pivot.mode=off on the kernel command line or in " + host.SettingsPath + " or its drop-ins")
	b.Progress.End(nil)
	return true
}

func (b *FirstBoot) attempt(ctx context.Context, settings host.Settings) (failure error) {
	if err := b.placeOrDefault().Enter(settings.Mode); err != nil {
		return err
	}
	if err := b.openToChange(ctx); err != nil {
		return err
	}
	defer b.pulledImages().Close()
	if b.Again {
		reopened, err := b.reopen()
		if err != nil {
			return err
		}
		if reopened {
			defer func() { failure = b.orClosedAgain(failure) }()
		}
	}
	b.Progress.Begin(pivot.StepRead, "reading "+b.File)
	ask, err := b.ask()
	if errors.Is(err, fs.ErrNotExist) {
		return b.endWithoutFile(ctx, err)
	}
	if err != nil {
		return err
	}
	out, err := b.converger().Converge(ctx, ask)
	if err != nil {
		return err
	}
	switch out.Action {
	case pivot.ActionClose:
		if err := b.carryInRunningSystem(ask.Entries); err != nil {
			return err
		}
		return b.close(ctx, out)
	case pivot.ActionHold:
		return b.hold(out)
	case pivot.ActionGiveUp:
		return b.giveUp(ctx, out)
	}
	b.runResult().Outcome, b.runResult().Changed = OutcomeCommitted, out.Action != pivot.ActionReboot
	if b.NoReboot {
		b.Progress.Note("the new system is committed: only the reboot is missing")
		return nil
	}
	return b.reboot(ctx, settings.RebootMethod)
}

// Plan returns what the first boot would change. It writes nothing.
func (b *FirstBoot) Plan(ctx context.Context) (pivot.Plan, error) {
	if err := b.open(); err != nil {
		return pivot.Plan{}, err
	}
	ask, err := b.ask()
	if err != nil {
		return pivot.Plan{}, err
	}
	return b.converger().Plan(ctx, ask)
}

// ask returns what the file asks of the machine.
func (b *FirstBoot) ask() (pivot.Ask, error) {
	desired, err := b.Read()
	if err != nil {
		return pivot.Ask{}, err
	}
	ask, err := b.askFor(desired)
	ask.TakenBack, ask.MachineConfig = b.takenBack, pivot.MachineConfig{Name: desired.Name, Digest: hostfiles.Digest(b.request)}
	b.runResult().MachineConfig = new(ask.MachineConfig)
	return ask, err
}

// Read reads and validates the file. The error reports all problems in it.
func (b *FirstBoot) Read() (*mcfile.Desired, error) {
	data, err := hostfiles.ReadSettings(b.Host.Path(b.File))
	if err != nil {
		return nil, fault.New(fault.BadInput, "cannot read the encapsulated MachineConfig: %w", err).
			WithHint("name a file that Ignition has left: by default it is " + EncapsulatedPath)
	}
	b.request = fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	facts, err := b.hostFacts()
	if err != nil {
		return nil, err
	}
	desired, report := mcfile.Parse(data, facts)
	if report.Failed() {
		return nil, report.Err("MachineConfig " + b.File)
	}
	for _, p := range report {
		b.Progress.Note(p.Text())
	}
	return desired, nil
}

// endWithoutFile ends a run that found no file. This is no error if File is the default
// path and the host is one that pivot can change.
func (b *FirstBoot) endWithoutFile(ctx context.Context, err error) error {
	if b.File != EncapsulatedPath {
		return err
	}
	if _, err := b.Host.Observe(ctx, pivot.Target{}); err != nil {
		return err
	}
	b.Progress.Note("nothing to do: there is no " + b.File)
	return nil
}

// close ends the first boot of a machine that is at its target.
func (b *FirstBoot) close(ctx context.Context, out pivot.Outcome) error {
	state, target := out.State, out.Target
	b.Progress.Begin(pivot.StepProve, "the machine is what was asked for")
	if b.Progress.Record.Phase == pivot.PhaseIdle || !b.Progress.Record.Target.Same(target) {
		b.Progress.Start(1, state.BootID, target)
	}
	b.Progress.Record.Error = nil
	b.Progress.Record.Closed = &pivot.Closing{Deployment: state.Booted.ID(), Request: b.request}
	// Write the journal first. As long as the file is there, the next run closes again after a
	// crash; without the file no run would.
	if err := b.Progress.Enter(pivot.PhaseDone, state.BootID); err != nil {
		return err
	}
	if err := b.moveAway(); err != nil {
		return err
	}
	b.runResult().endChanged(OutcomeClosed)
	b.converger().Release(ctx) // again: power may have failed between the commit and its Release
	b.Progress.Note(fmt.Sprintf("first boot closed: %s is now %s.bak", b.File, b.File))
	return nil
}
