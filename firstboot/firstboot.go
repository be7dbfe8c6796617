// Package firstboot completes a machine's first boot: it moves the machine to the system that the
// encapsulated MachineConfig asks for, and proves on the next boot that it is there. This file
// tells the story from top to bottom. What happens to a machine later is in package day2.
package firstboot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// FirstBoot is one attempt at the first boot of a machine.
type FirstBoot struct {
	*machine.Machine
	File     string // the encapsulated MachineConfig: EncapsulatedPath, or another file
	NoReboot bool   // commit, but do not reboot
	Again    bool   // go forward although the first boot was completed, or given up, before
}

// Run brings the machine to what the encapsulated MachineConfig asks for. It ends in one of three ways. The machine is
// proven to be at its target and the first boot is closed; the target is committed and the machine reboots; or Run
// returns why neither was possible.
//
// In an initramfs there is a fourth: Run steps aside, and the started system does
// the same work (place.go).
//
// Run changes nothing if the first boot is switched off or if there is no file. If the
// machine was rolled back to this system after its first boot, Run leaves it as it is
// (takenback.go).
func (b *FirstBoot) Run(ctx context.Context) error {
	chosen, err := b.Settings()
	if b.noteIfOff(chosen, err) {
		return nil
	}
	if err == nil {
		err = b.ExplainStop(ctx, b.attempt(ctx, chosen))
	}
	aside, err := b.Where().Conclude(err, chosen.OnFailure)
	if aside != nil {
		b.Progress.Note(aside.Error())
		b.Report().Outcome = machine.OutcomeAside
	}
	b.TellBootc()
	b.Progress.FirstBoot = b.isMachines()
	b.Progress.End(err)
	return err
}

// isMachines reports whether a failure of this run is the machine's, as its first boot is not
// over.
func (b *FirstBoot) isMachines() bool {
	open, err := machine.OpenFirstBoot(b.Host.Root)
	unsettled := []pivot.Phase{"", pivot.PhaseIdle, pivot.PhaseApplying, pivot.PhaseInterrupted, pivot.PhaseFailed}
	return !b.Again && (open != "" || err != nil || slices.Contains(unsettled, b.Progress.Content.Phase))
}

// Off reports whether the administrator has switched the first boot off, and notes it in
// the progress if so. Run then does nothing. Callers check this before steps that can fail,
// such as taking the lock, so that a disabled first boot never blocks the boot.
func (b *FirstBoot) Off() bool { return b.noteIfOff(b.Settings()) }

func (b *FirstBoot) noteIfOff(chosen settings.Settings, err error) bool {
	if chosen.Mode != settings.ModeOff {
		return false
	}
	for _, err := range []error{err, b.Open()} { // the status includes the journal
		if err != nil {
			b.Progress.Note("warning: " + err.Error())
		}
	}
	b.Progress.Note("nothing done: the first boot is switched off, by pivot.mode=off on the kernel command line or in " + settings.Path + " or its drop-ins")
	b.Progress.End(nil)
	return true
}

func (b *FirstBoot) attempt(ctx context.Context, chosen settings.Settings) (failure error) {
	if err := b.Where().Enter(chosen.Mode); err != nil {
		return err
	}
	proves, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer b.Pulled().Close()
	if b.Again && !proves { // what is to be proven is neither closed nor given up
		reopened, err := b.reopen()
		if err != nil {
			return err
		}
		if reopened {
			defer func() { failure = b.orClosedAgain(failure) }()
		}
	}
	b.Progress.Begin(pivot.StepRead, "reading "+b.path())
	req, digest, err := b.read()
	if errors.Is(err, fs.ErrNotExist) {
		return b.endWithoutFile(ctx, err)
	}
	if err != nil {
		// Refused input is reported, but not journaled: a corrected file starts afresh, without a used
		// attempt.
		return err
	}
	req.Reboots = !b.NoReboot
	converger := b.Converger(nil)
	b.Progress.Begin(pivot.StepObserve, "looking at the host")
	plan, err := converger.Plan(ctx, req)
	if err != nil {
		return err
	}
	decision := converger.Decide(plan)
	var ways machine.Ways
	if decision.LeadsOn() {
		ways = b.FindWays(ctx, chosen.RebootMethod, b.NextSystem(plan))
		if text := ways.Text(); text != "" && !b.NoReboot {
			b.Progress.Note(text)
		}
	}
	if err := converger.Converge(ctx, plan, decision); err != nil {
		return err
	}
	switch decision.Action {
	case pivot.ActionClose:
		b.Progress.Begin(pivot.StepProve, "the machine is what was asked for")
		if err := b.CarryInRunningSystem(req.Entries); err != nil {
			return err
		}
		if !b.Progress.Content.Held() { // otherwise the feature that holds it changes the next boot
			b.WarnAboutNextBoot(plan)
		}
		if err := b.Joined().After(ctx, pivot.StepProve, &plan, false); err != nil {
			return err
		}
		return b.close(ctx, converger, plan, digest)
	case pivot.ActionYield:
		if decision.Yields(pivot.DemandStay) {
			return b.hold(plan)
		}
		return b.Joined().After(ctx, pivot.StepProve, &plan, true)
	case pivot.ActionGiveUp:
		return b.giveUp(ctx, converger, plan)
	}
	b.Report().Outcome, b.Report().Changed = machine.OutcomeCommitted, decision.Action != pivot.ActionReboot
	if b.NoReboot {
		b.Progress.Note("the new system is committed: only the reboot is missing")
		return nil
	}
	return b.EnterNext(ctx, ways)
}

// open opens the journal for a run that may change the machine, and reports whether the run has to prove the system
// that runs, which was entered once. In an initramfs it then returns an error of kind fault.Later: only the started
// system does that.
func (b *FirstBoot) open(ctx context.Context) (proves bool, err error) {
	if err := b.OpenToWrite(ctx); err != nil {
		return false, err
	}
	if _, err := machine.ClosingIn(b.Progress.Content); err != nil { // nobody could tell whether somebody went back
		return false, err
	}
	features := b.Joined()
	if err := features.Before(ctx, pivot.StepProve, nil); err != nil {
		return false, err
	}
	if demand, _ := features.Demand(nil); demand == pivot.DemandReturn {
		return true, nil
	}
	return false, features.Before(ctx, pivot.StepObserve, nil) // the journal is open: it may not have what is known by now
}

// Plan returns what the first boot would change. It writes nothing.
func (b *FirstBoot) Plan(ctx context.Context) (pivot.Plan, error) {
	if err := b.Open(); err != nil {
		return pivot.Plan{}, err
	}
	req, _, err := b.read()
	if err != nil {
		return pivot.Plan{}, err
	}
	converger := b.Converger(nil)
	req.Shown = true
	plan, err := converger.Plan(ctx, req)
	if err != nil {
		return plan, err
	}
	if plan, err = converger.Preview(ctx, plan); err == nil {
		plan = b.WithWay(ctx, plan, true)
	}
	return plan, err
}

// read reads and validates the file. It returns what the file asks of the machine, and the file's
// digest. The error reports all problems in it.
func (b *FirstBoot) read() (req pivot.Request, digest string, err error) {
	file := b.path()
	data, err := hostfiles.ReadSettings(b.Host.Root, file)
	if err != nil {
		return req, "", fault.New(fault.BadInput, "cannot read the encapsulated MachineConfig: %w", err).
			WithHint("name a file that Ignition has left: by default it is " + EncapsulatedPath)
	}
	digest = fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	facts, err := b.Facts()
	if err != nil {
		return req, digest, err
	}
	desired, report := machineconfig.Parse(data, facts)
	if report.Failed() {
		return req, digest, report.Err("MachineConfig " + file)
	}
	for _, p := range report {
		b.Progress.Note(p.Text())
	}
	req, err = b.Request(desired)
	if b.File == EncapsulatedPath {
		req.Inherits = b.handOn
	}
	req.TakenBack = func(state pivot.State) bool { return b.takenBack(state, digest) }
	req.MachineConfig = pivot.MachineConfig{Name: desired.Name, Digest: hostfiles.Digest(digest)}
	b.Report().MachineConfig = new(req.MachineConfig)
	return req, digest, err
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
func (b *FirstBoot) close(ctx context.Context, converger *pivot.Converger, plan pivot.Plan, digest string) error {
	state, target := plan.From(), plan.To()
	if b.Progress.Content.Phase == pivot.PhaseIdle || !b.Progress.Content.Target.Same(target) {
		b.Progress.Start(1, state.BootID, target)
	}
	b.Progress.Content.Error = nil
	if err := (machine.Closing{Deployment: state.Booted.ID(), Request: digest}).KeepIn(&b.Progress.Content); err != nil {
		return err
	}
	file := b.path()
	if err := b.end(pivot.PhaseDone, state); err != nil {
		return err
	}
	b.Report().EndChanged(machine.OutcomeClosed)
	converger.Release(ctx) // again: power may have failed between the commit and its Release
	b.Progress.Note(fmt.Sprintf("first boot closed: %s is now %s.bak", file, b.File))
	return nil
}

// end ends the first boot with a phase of a machine that stays as it is.
//
// It writes the journal first. As long as the file is there, the next run closes again after a crash; without the file
// no run would. If the journal cannot be written, the closed file is the record (machine.ClosedFirstBoot): a full disk must not
// keep a node from its cluster that is what was asked for. A file elsewhere is no record, because nobody would look there.
func (b *FirstBoot) end(phase pivot.Phase, state pivot.State) error {
	unrecorded := b.Progress.Enter(phase, state.BootID)
	if unrecorded != nil && b.File != EncapsulatedPath {
		return unrecorded
	}
	if err := b.moveAway(); err != nil {
		return errors.Join(err, unrecorded)
	}
	if unrecorded != nil {
		b.Progress.Announce(phase, state.BootID)
		b.Progress.Note(fmt.Sprintf("warning: only %s records the end of this first boot: %v", machineconfig.ClosedPath, unrecorded))
	}
	return nil
}
