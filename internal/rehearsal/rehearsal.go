// Package rehearsal is the feature that asks a new system, before it is committed, whether this machine can start it. Package
// rehearse has the questions.
package rehearsal

import (
	"context"
	"slices"

	"machine-pivot/internal/machine"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/rehearse"
	"machine-pivot/internal/settings"
	"machine-pivot/internal/verdict"
	"machine-pivot/pivot"
)

// Feature returns the rehearsal.
func Feature() machine.Feature { return machine.Feature{Of: of} }

// feature is the rehearsal on a machine.
type feature struct {
	pivot.NoFeature
	m        *machine.Machine
	installs bool // the boot loader of the image that was judged last, before its commit
}

func of(m *machine.Machine) pivot.Feature { return &feature{m: m} }

// Name implements pivot.Feature.
func (*feature) Name() string { return "rehearsal" }

// Before implements pivot.Feature: as long as the image is not there, a plan says when it is judged. When only the commit is left to
// do, the boot loader follows.
func (f *feature) Before(ctx context.Context, step pivot.Step, plan *pivot.Plan) error {
	if step == pivot.StepReady && f.installs {
		return f.install(ctx, plan)
	}
	if step == pivot.StepPreflight && f.m.Self != "" && plan.Image.Changed && plan.To().Image.Commit == "" {
		plan.Notes = append(slices.Clone(plan.Notes), "whether this machine can start the image is judged when it is pulled, or now: pivot image check")
	}
	return nil
}

// After implements pivot.Feature: an image that is there is judged. The error has all that refuses it. The plan gets what
// the settings accept of that.
func (f *feature) After(ctx context.Context, step pivot.Step, plan *pivot.Plan, failed bool) error {
	if step != pivot.StepPull {
		return nil
	}
	if f.installs = false; failed || f.m.Self == "" || !plan.Image.Changed {
		return nil
	}
	chosen, err := f.m.Settings()
	if err != nil {
		return err
	}
	found, err := f.judge(ctx, *plan, chosen.BootLoader)
	if err != nil {
		return err
	}
	accepted, notes, err := verdict.Decide(found, chosen.Accept)
	plan.Notes = append(slices.Clone(plan.Notes), notes...)
	*plan = plan.Accepting(accepted)
	return err
}

// judge returns what speaks against a plan's new system on this machine.
func (f *feature) judge(ctx context.Context, plan pivot.Plan, choice settings.BootLoader) (found []verdict.Finding, err error) {
	next, err := ostree.ParseChecksum(plan.To().Image.Commit)
	if err != nil {
		return nil, err
	}
	running, err := ostree.ParseChecksum(plan.From().Booted.Commit)
	if err != nil {
		return nil, err
	}
	kernel := f.judgeKernel(ctx, plan, next, running, choice)
	change := rehearse.Change{Next: next, Running: running, Line: plan.Kargs.Final, Own: *f.own(plan), Rebuilt: plan.From().Booted.Base != "", BootLoader: f.installs}
	found, err = f.asked(ctx, change, machine.ReadFacts(ctx, f.m.Host))
	return slices.Concat(found, kernel), err
}
