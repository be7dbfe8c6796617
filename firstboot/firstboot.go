// Package firstboot tells the stories of a machine's move to another system: its first
// boot (this file, top to bottom), an administrator's pivot by hand (rebase.go), the move
// to another MachineConfig (apply.go). All are the same few steps on the same parts.
package firstboot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"machine-pivot/internal/encapsulated"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/pivot"
)

// EncapsulatedPath is where Ignition leaves the encapsulated MachineConfig. That
// it is there means that the first boot is not over.
const EncapsulatedPath = encapsulated.Path

// closedSuffix is what the file's name gets at its end once the first boot is closed.
const closedSuffix = ".bak"

// FirstBoot is the first boot of a machine: one attempt to its end.
type FirstBoot struct {
	Machine
	File     string // the encapsulated MachineConfig
	NoReboot bool   // stop where only the reboot is missing
	Again    bool   // go forward although the first boot was completed, or given up, before

	request string // the file's digest, once it is read
}

// Run brings the machine to what the encapsulated MachineConfig asks for. It
// ends in one of three ways: the machine is proven to be at its target and the
// first boot is closed; the target is committed and the machine reboots; or an
// error says why neither could be.
//
// In an initramfs there is a fourth: it steps aside, and the started system does
// the same (place.go).
func (b *FirstBoot) Run(ctx context.Context) error {
	settings, err := b.settings()
	if b.saysOff(settings, err) {
		return nil
	}
	if err == nil {
		err = b.stopped(ctx, b.attempt(ctx, settings))
	}
	aside, err := b.placeOrDefault().Conclude(err, settings.OnFailure)
	if aside != nil {
		b.Progress.Note(aside.Error())
	}
	if err != nil {
		b.Progress.Fail(err)
	}
	return err
}

// Off reports, and tells, whether the administrator has switched the first boot off.
// Then Run does nothing. Callers ask before what may fail, as the machine's lock:
// with a first boot that is off nobody is held.
func (b *FirstBoot) Off() bool { return b.saysOff(b.settings()) }

func (b *FirstBoot) saysOff(settings host.Settings, err error) bool {
	if settings.Mode != host.ModeOff {
		return false
	}
	for _, err := range []error{err, b.open()} { // the journal for the status' sake
		if err != nil {
			b.Progress.Note("warning: " + err.Error())
		}
	}
	b.Progress.Note("nothing done: the first boot is switched off, by pivot.mode=off on the kernel command line or in " + host.SettingsPath)
	return true
}

func (b *FirstBoot) attempt(ctx context.Context, settings host.Settings) error {
	if err := b.placeOrDefault().Enter(settings.Mode); err != nil {
		return err
	}
	if err := b.openToChange(ctx); err != nil {
		return err
	}
	defer b.pulledImages().Close()
	if b.Again {
		if err := b.reopen(); err != nil {
			return err
		}
	}
	b.Progress.Begin(pivot.StepRead, "reading "+b.File)
	ask, err := b.ask()
	if errors.Is(err, fs.ErrNotExist) {
		return b.nothingAsked(ctx, err)
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
		if err := b.carryHere(ask.Entries); err != nil {
			return err
		}
		return b.close(out)
	case pivot.ActionHold:
		return b.hold(out)
	case pivot.ActionGiveUp:
		return b.gaveUp(ctx, out)
	}
	if b.NoReboot {
		b.Progress.Note("the new system is committed: only the reboot is missing")
		return nil
	}
	return b.reboot(ctx, settings.RebootMethod)
}

// Plan works out what the first boot would change and writes nothing.
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

// ask is what the file asks of the machine.
func (b *FirstBoot) ask() (pivot.Ask, error) {
	desired, err := b.Read()
	if err != nil {
		return pivot.Ask{}, err
	}
	ask, err := b.asking(desired)
	ask.TakenBack = b.takenBack
	return ask, err
}

// Read reads and validates the file; the error reports every problem of it.
func (b *FirstBoot) Read() (*encapsulated.Desired, error) {
	data, err := os.ReadFile(b.Host.Path(b.File))
	if err != nil {
		return nil, fault.New(fault.BadInput, "cannot read the encapsulated MachineConfig: %w", err)
	}
	b.request = fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	judge, err := b.judge()
	if err != nil {
		return nil, err
	}
	desired, report := encapsulated.Parse(data, judge)
	if report.Failed() {
		return nil, report.Err("MachineConfig " + b.File)
	}
	for _, p := range report {
		b.Progress.Note(p.Text())
	}
	return desired, nil
}

// nothingAsked ends a run without a file: fine on a host that pivot is for.
func (b *FirstBoot) nothingAsked(ctx context.Context, err error) error {
	if b.File != EncapsulatedPath {
		return err
	}
	if _, err := b.Host.Observe(ctx, pivot.Target{}); err != nil {
		return err
	}
	b.Progress.Note("nothing to do: there is no " + b.File)
	return nil
}

// close ends the first boot: the machine is what was asked for.
func (b *FirstBoot) close(out pivot.Outcome) error {
	state, target := out.State, out.Target
	b.Progress.Begin(pivot.StepProve, "the machine is what was asked for")
	if b.Progress.Record.Phase == pivot.PhaseIdle || !b.Progress.Record.Target.Same(target) {
		b.Progress.Start(1, state.BootID, target)
	}
	b.Progress.Record.Error = nil
	b.Progress.Record.Closed = &pivot.Closing{Deployment: state.Booted.ID(), Request: b.request}
	// The journal first: a file that is left makes this boot's work be done again, a missing one does not.
	if err := b.Progress.Enter(pivot.PhaseDone, state.BootID); err != nil {
		return err
	}
	if err := b.moveAway(); err != nil {
		return err
	}
	b.converger().Release() // again: a power cut may have come between the commit and this
	b.Progress.Note(fmt.Sprintf("first boot closed: %s is now %s.bak", b.File, b.File))
	return nil
}
