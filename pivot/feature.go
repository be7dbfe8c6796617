package pivot

import (
	"cmp"
	"context"
)

// Feature is something that a change may have and that the core does not know, such as a slot of a fleet's lock. It is one
// folder, and one line in the list of a program.
type Feature interface {
	// Name is the key of the feature's part of the journal and of the status.
	Name() string
	// Demand returns what the feature demands of a run, and why a run that cannot do that is refused. plan is nil as long as
	// there is none.
	Demand(plan *Plan) (Demand, error)
	// Before checks or does what has to precede a step. It may complete the plan. An error ends the run before the step. It
	// is called with StepReady before whatever changes the machine. With StepObserve the plan has only its request.
	//
	// Without a plan, it is called before a command waits (StepRead, StepWait), and once the journal may be written
	// (StepBegin). Then before a command that may change the machine looks at it (StepObserve, in a first boot StepProve).
	// Last before a reboot (StepReboot), which the feature may request in its own way.
	Before(ctx context.Context, step Step, plan *Plan) error
	// After does what follows a step. failed says that the step, or what preceded it, has failed; for StepWait, that the
	// run has, or that it has changed nothing. Then its error is not returned. After StepProve of a first boot, failed says
	// that the running system is not the target, and that DemandReturn is to be met.
	After(ctx context.Context, step Step, plan *Plan, failed bool) error
	// Status shows the feature's part of the journal.
	Status(journal JournalContent) Status
}

// NoFeature has the methods of a feature that does nothing, for those that do not need them all.
type NoFeature struct{}

// Demand implements Feature.
func (NoFeature) Demand(*Plan) (Demand, error) { return DemandNone, nil }

// Before implements Feature.
func (NoFeature) Before(context.Context, Step, *Plan) error { return nil }

// After implements Feature.
func (NoFeature) After(context.Context, Step, *Plan, bool) error { return nil }

// Status implements Feature.
func (NoFeature) Status(JournalContent) Status { return Status{} }

// Again is the reason of a run that has changed nothing, and begins again with its wait.
type Again struct{ Why string }

// Error implements error.
func (a Again) Error() string { return a.Why }

// Status is what a feature adds to the status of a machine.
type Status struct {
	Lines []Line   // for people
	Notes []string // observations, for people
	// Instead is shown in place of the journal's phase; nil if the feature leaves the phase to the core.
	Instead *Instead
}

// Instead is a phase that a feature decides, with what follows from it.
type Instead struct {
	Phase Phase
	Error *Failure
	Notes []string
	Next  string // what a person must do so that the machine continues; "" if nothing
}

// Line is a line of a status.
type Line struct{ Name, Text string }

// Features are the features of a machine. Their methods are those of each of them, in order.
type Features []Feature

// Demand returns the greatest demand, with its reason.
func (all Features) Demand(plan *Plan) (greatest Demand, why error) {
	for _, f := range all {
		if demand, because := f.Demand(plan); demand > greatest {
			greatest, why = demand, because
		}
	}
	return greatest, why
}

// Before calls Before, until one returns an error.
func (all Features) Before(ctx context.Context, step Step, plan *Plan) error {
	for _, f := range all {
		if err := f.Before(ctx, step, plan); err != nil {
			return err
		}
	}
	return nil
}

// After calls After, until one returns an error.
func (all Features) After(ctx context.Context, step Step, plan *Plan, failed bool) error {
	for _, f := range all {
		if err := f.After(ctx, step, plan, failed); err != nil {
			return err
		}
	}
	return nil
}

// Parts returns the features' parts of a journal, by name.
func (all Features) Parts(journal JournalContent) map[string]Part {
	parts := map[string]Part{}
	for _, f := range all {
		if part, has := journal.Features[f.Name()]; has {
			parts[f.Name()] = part
		}
	}
	return parts
}

// Status returns what all add.
func (all Features) Status(journal JournalContent) (s Status) {
	for _, f := range all {
		one := f.Status(journal)
		s.Lines, s.Notes = append(s.Lines, one.Lines...), append(s.Notes, one.Notes...)
		s.Instead = cmp.Or(s.Instead, one.Instead)
	}
	return s
}
