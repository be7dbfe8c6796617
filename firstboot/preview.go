package firstboot

import (
	"context"

	"machine-pivot/pivot"
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
	if err := m.open(); err != nil {
		return pivot.Plan{}, err
	}
	target, err := m.pin(ctx, target)
	if err != nil {
		return pivot.Plan{}, err
	}
	if target, err = m.recall(target); err != nil {
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
	if plan.Image.From != plan.Image.To {
		if target, plan, err = m.planImageKargs(state, target, plan); err != nil {
			return pivot.Plan{}, err
		}
	}
	warnings, err := m.partition(state, target)
	plan.Notes = append(plan.Notes, warnings...)
	return plan, err
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
