package firstboot

import (
	"context"

	"machine-pivot/pivot"
	"machine-pivot/status"
)

// Plan works out what a first boot would change and writes nothing.
func (b *FirstBoot) Plan(ctx context.Context) (pivot.Plan, error) {
	desired, err := b.Read()
	if err != nil {
		return pivot.Plan{}, err
	}
	target, err := b.Target(desired)
	if err != nil {
		return pivot.Plan{}, err
	}
	return b.plan(ctx, target)
}

// Plan works out what a pivot by hand would change and writes nothing.
func (r *Rebase) Plan(ctx context.Context) (pivot.Plan, error) {
	target, err := r.Target()
	if err != nil {
		return pivot.Plan{}, err
	}
	return r.plan(ctx, target)
}

func (m *Machine) plan(ctx context.Context, target pivot.Target) (pivot.Plan, error) {
	target, err := m.pin(ctx, target)
	if err != nil {
		return pivot.Plan{}, err
	}
	state, err := m.Host.Observe(target.Paths())
	if err != nil {
		return pivot.Plan{}, err
	}
	plan, err := pivot.Diff(state, target)
	if err != nil || !plan.Changed {
		return plan, err
	}
	warnings, err := m.partition(state, target)
	plan.Notes = append(plan.Notes, warnings...)
	return plan, err
}

// Status is what this boot's run, or else the journal, tells, with what is
// booted. A pivot by hand that no later run has closed counts as done once the
// booted system proves to be its target.
func (m *Machine) Status() (status.Status, error) {
	s, err := status.Read(m.Host.Root)
	if err != nil {
		return s, err
	}
	state, err := m.Host.Observe(s.Target.Paths())
	if err != nil {
		return s, nil // on a host that cannot pivot the rest still tells something
	}
	s.Booted = &state.Booted
	if state.Pending() {
		s.Pending = &state.Default
	}
	if err := m.Progress.Open(); err != nil {
		return s, err
	}
	newBoot := m.Progress.Record.BootID != state.BootID
	if s.Phase == pivot.Committed && newBoot && len(pivot.Prove(state, s.Target)) == 0 {
		s.Phase = pivot.Done
	}
	return s, nil
}

// Verify compares what runs with what was last asked for and names each
// difference. That is the encapsulated MachineConfig's target while the first
// boot is open, and the journal's after it.
func (m *Machine) Verify() ([]string, error) {
	if err := m.Progress.Open(); err != nil {
		return nil, err
	}
	target := m.Progress.Record.Target
	state, err := m.Host.Observe(target.Paths())
	if err != nil {
		return nil, err
	}
	drift, err := m.partitionDrift(state, target)
	return append(pivot.Prove(state, target), drift...), err
}
