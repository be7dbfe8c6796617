package pivot

import "context"

// Feature is something that a change may have and that the core does not know, such as a slot of a fleet's lock. It is one
// folder, and one line in the list of a program.
type Feature interface {
	// Name is the key of the feature's part of the journal and of the status.
	Name() string
	// Demand returns what the feature demands of a run. plan is nil as long as there is none.
	Demand(plan *Plan) Demand
	// Before checks or does what has to precede a step. It may complete the plan, which is nil as long as there is none. An
	// error ends the run before the step. It is called with StepReady before whatever changes the machine.
	Before(ctx context.Context, step Step, plan *Plan) error
	// After does what follows a step. failed says that the step, or what preceded it, has failed; for StepWait, that the
	// run has, or that it has changed nothing. Then its error is not returned.
	After(ctx context.Context, step Step, plan *Plan, failed bool) error
	// Status shows the feature's part of the journal to people; nil if there is nothing to show.
	Status(journal JournalContent) []Line
}

// NoFeature has the methods of a feature that does nothing, for those that do not need them all.
type NoFeature struct{}

// Demand implements Feature.
func (NoFeature) Demand(*Plan) Demand { return DemandNone }

// Before implements Feature.
func (NoFeature) Before(context.Context, Step, *Plan) error { return nil }

// After implements Feature.
func (NoFeature) After(context.Context, Step, *Plan, bool) error { return nil }

// Status implements Feature.
func (NoFeature) Status(JournalContent) []Line { return nil }

// Again is the reason of a run that has changed nothing, and begins again with its wait.
type Again struct{ Why string }

// Error implements error.
func (a Again) Error() string { return a.Why }

// Line is a line of a status.
type Line struct{ Name, Text string }

// Features are the features of a machine. Their methods are those of each of them, in order.
type Features []Feature

// Demand returns the greatest demand.
func (all Features) Demand(plan *Plan) (greatest Demand) {
	for _, f := range all {
		greatest = max(greatest, f.Demand(plan))
	}
	return greatest
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

// Status returns the lines of all.
func (all Features) Status(journal JournalContent) (lines []Line) {
	for _, f := range all {
		lines = append(lines, f.Status(journal)...)
	}
	return lines
}
