package trial

import (
	"context"
	"fmt"
	"slices"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// Feature returns the trial of new systems, with its flags and commands.
func Feature() machine.Feature {
	return machine.Feature{Of: of, Flags: flags(), Check: check, Commands: []machine.Command{confirm(), conduct()}}
}

// feature is the trial of a machine for one command.
type feature struct {
	*Conductor
	machine *machine.Machine
	trying  *trying // what the request asks for; nil: nothing, or it is not possible
	cannot  error   // why the trial that a flag asks for is not possible
	without error   // why the setting fallback is without effect
	said    []string
}

var _ pivot.Feature = (*feature)(nil)

func of(m *machine.Machine) pivot.Feature { return &feature{Conductor: conductor(m), machine: m} }

// conductor returns the Conductor of trials on a machine.
func conductor(m *machine.Machine) *Conductor {
	return &Conductor{
		Host: m.Host, Progress: m.Progress, Differences: m.Failures, Reboot: m.RebootBy,
		ClosedFirstBoot: func() (hostfiles.Digest, error) { return machine.ClosedFirstBoot(m.Host.Root) },
	}
}

// Name implements pivot.Feature.
func (*feature) Name() string { return Name }

// Demand implements pivot.Feature.
func (f *feature) Demand(plan *pivot.Plan) (pivot.Demand, error) {
	if plan == nil {
		state, _, err := f.judge()
		if err != nil {
			return pivot.DemandStop, err
		}
		return state.Demand(), state.refusal()
	}
	t, err := In(f.Progress.Content)
	if err != nil {
		return pivot.DemandStop, err
	}
	from, journal := plan.From(), f.Progress.Content
	state := t.Judge(journal.Phase, from.Booted.ID(), journal.BootID == from.BootID)
	demand := state.Demand()
	if plan.Tries() || f.cannot != nil {
		demand = max(demand, pivot.DemandAnew)
	}
	return demand, state.refusal()
}

// Before implements pivot.Feature.
func (f *feature) Before(ctx context.Context, step pivot.Step, plan *pivot.Plan) error {
	switch {
	case plan == nil && step == pivot.StepObserve:
		return f.PrepareChange(ctx)
	case plan == nil && step == pivot.StepProve:
		return f.comeUp(ctx)
	case plan == nil && step == pivot.StepReboot:
		return f.enterNext(ctx)
	case plan == nil:
	case step == pivot.StepObserve:
		return f.ask(ctx, plan)
	case step == pivot.StepPreflight:
		return f.noteWay(plan)
	case step == pivot.StepReady && plan.Reboots > 0:
		return f.cannot
	case !plan.Tries():
	case step == pivot.StepIntend:
		return f.intend()
	case step == pivot.StepKeep:
		return f.hold(ctx)
	}
	return nil
}

// After implements pivot.Feature.
func (f *feature) After(ctx context.Context, step pivot.Step, plan *pivot.Plan, failed bool) error {
	switch {
	case step == pivot.StepObserve:
		f.judgeOnce(plan)
	case step == pivot.StepPull && !failed && plan.Tries() && plan.Image.Changed:
		return f.learn(plan)
	case step == pivot.StepProve && failed:
		return f.giveBack(ctx, f.machine.Converger(nil).Missing(ctx, *plan), plan.Request().Reboots)
	case step == pivot.StepProve && f.there():
		return f.Keep(ctx)
	}
	return nil
}

// comeUp does what a first boot does before it proves the running system, if that was entered once. Only the started
// system proves it: an initramfs gets an error of kind fault.Later.
func (f *feature) comeUp(ctx context.Context) error {
	state, _, err := f.judge()
	proves := state == Proves || state == Kept
	switch {
	case err != nil || !proves || f.trial().Confirm != ConfirmProof:
		return err
	case !f.machine.Where().Started():
		return fault.New(fault.Later, "this system is on trial, and only the started system can end the trial")
	case state == Kept:
		return f.FinishKeep(ctx)
	}
	// Unit has done this already, if the new system has it enabled. A failure is no reason not to prove the system.
	if err := f.OldFirst(ctx); err != nil {
		f.Progress.Note(fmt.Sprintf("the new system is the default although it is not proven yet: %v", err))
	}
	return nil
}

// there reports whether there is a trial.
func (f *feature) there() bool { return f.trial().Old != "" }

// enterNext enters the system on trial, if that is committed.
func (f *feature) enterNext(ctx context.Context) error {
	if !f.there() {
		return nil
	}
	chosen, err := f.machine.Settings()
	if err != nil {
		return err
	}
	return f.Enter(ctx, chosen.RebootMethod)
}

// noteWay notes how the new system is going to be entered, and what does not return the machine from it if it hangs. A
// plan that is shown has that among its notes.
func (f *feature) noteWay(plan *pivot.Plan) error {
	switch req := plan.Request(); {
	case f.cannot != nil:
		return f.cannot
	case req.Shown:
		if note := lacksWatchdog(f.machine); note != "" && f.always() {
			plan.Notes = append(slices.Clone(plan.Notes), note)
		}
		return nil
	case f.without != nil:
		f.note(withoutFallback(f.without))
	case plan.Tries():
		if req.ByHand {
			f.note(plan.Once())
		}
		f.note(lacksWatchdog(f.machine))
	}
	return nil
}

// note notes a text, unless it is empty or was noted already.
func (f *feature) note(text string) {
	if text != "" && !slices.Contains(f.said, text) {
		f.said = append(f.said, text)
		f.Progress.Note(text)
	}
}

// always reports whether the settings have each new system entered only once.
func (f *feature) always() bool {
	chosen, err := f.machine.Settings()
	return err == nil && chosen.Fallback == settings.FallbackAuto
}

// lacksWatchdog returns the note for a system that is entered only once if nothing resets the machine
// when that system hangs. Then somebody has to make the power cycle that starts the old one. It returns "" if a
// watchdog is armed, or if that is not known. In an initramfs it is not: a watchdog may be armed later.
func lacksWatchdog(m *machine.Machine) string {
	if !m.Where().Started() {
		return ""
	}
	watchdog, err := m.Host.Watchdog()
	if err != nil { // no reason to fail anything
		return ""
	}
	return watchdog.Lacking()
}

// Status implements pivot.Feature.
func (f *feature) Status(journal pivot.JournalContent) (s pivot.Status) {
	t, err := In(journal)
	if err != nil {
		s.Lines = []pivot.Line{{Name: Name, Text: fault.WithRemedy(err)}}
	}
	if t != nil {
		s.Lines, s.Instead = t.lines(), f.instead(journal)
	}
	if f.always() || t != nil && journal.Phase != pivot.PhaseFailed {
		if note := lacksWatchdog(f.machine); note != "" {
			s.Notes = append(s.Notes, note)
		}
	}
	return s
}

// lines returns who confirms a trial, and by when.
func (t Trial) lines() []pivot.Line {
	text := fmt.Sprintf("%v from the start of the kernel, confirmed by pivot confirm", t.Limit())
	switch t.Confirm {
	case ConfirmProof:
		text = "booted once, kept by the first boot once it is proven"
	case ConfirmAuto:
		text = fmt.Sprintf("%v from the start of the kernel, confirmed by itself", t.Limit())
	}
	lines := []pivot.Line{{Name: Name, Text: text}}
	for _, check := range t.Checks {
		lines = append(lines, pivot.Line{Text: "check " + check})
	}
	return lines
}

// instead returns the phase of a machine with a trial.
func (f *feature) instead(journal pivot.JournalContent) *pivot.Instead {
	state, failed, err := f.State()
	shown := &pivot.Instead{Phase: journal.Phase, Error: journal.Error}
	if err != nil {
		shown.Notes = []string{fault.WithRemedy(err)}
		return shown
	}
	switch state {
	case Waits:
		shown.Notes = []string{"the new system is tried once: by the reboot that pivot asks for, not by another one"}
		shown.Next = "run the same command again"
	case Runs:
		shown.Notes = []string{"this system is on trial: a reboot starts the old one"}
		if f.trial().Confirm != ConfirmAuto {
			shown.Next = "pivot confirm keeps this system"
		}
	case Proves:
		shown.Notes = []string{"this system was booted once: its first boot keeps it once its checks pass; a reboot before that starts the old one"}
	case Kept:
		if closed, _ := machine.ClosingIn(f.Progress.Content); closed != nil && closed.Deployment == f.trial().New {
			shown.Phase = pivot.PhaseDone
			shown.Notes = []string{"this system is kept: its first boot has proven it, which could not be journaled yet"}
		}
	case Lost:
		shown.Notes = []string{"this system has failed its trial: a reboot starts the old one"}
	case Over:
		shown.Phase, shown.Error = pivot.PhaseFailed, failed
	}
	return shown
}

// Terms are the conditions of a trial.
type Terms struct {
	For     time.Duration // time limit from the start of the kernel; whole seconds
	Confirm Confirm
	Checks  []string // shell commands that must succeed
}
