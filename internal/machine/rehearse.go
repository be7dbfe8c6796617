package machine

import (
	"context"
	"slices"
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/rehearse"
	"machine-pivot/internal/verdict"
	"machine-pivot/pivot"
)

// rehearse asks a plan's new system, whose image is in the repository, whether this machine can start it. The error has
// all that refuses it; accepted is what the settings accept of that.
func (m *Machine) rehearse(ctx context.Context, plan pivot.Plan) (accepted []verdict.Accepted, notes []string, err error) {
	if m.Self == "" {
		return nil, nil, nil
	}
	found, err := m.judge(ctx, plan)
	if err != nil {
		return nil, nil, err
	}
	chosen, err := m.Settings()
	if err != nil {
		return nil, nil, err
	}
	return verdict.Settle(found, chosen.Accept)
}

// judge returns what speaks against a plan's new system on this machine.
func (m *Machine) judge(ctx context.Context, plan pivot.Plan) (found []verdict.Finding, err error) {
	next, err := ostree.ParseChecksum(plan.To().Image.Commit)
	if err != nil {
		return nil, err
	}
	running, err := ostree.ParseChecksum(plan.From().Booted.Commit)
	if err != nil {
		return nil, err
	}
	stage := rehearse.Stage{Self: m.Self, Repo: m.Host.Sysroot().RepoPath()}
	booted := plan.From().Booted
	found, err = stage.Judge(ctx, rehearse.Change{Next: next, Running: running, Line: plan.Kargs.Final, Rebuilt: booted.Base != ""}, m.facts(ctx))
	return slices.Concat(found, m.judgeKernel(plan, next, running), m.judgeForm(next, running)), err
}

// facts returns what a rehearsal asks of this machine.
func (m *Machine) facts(ctx context.Context) rehearse.Facts {
	return rehearse.Read(m.Host.Root, func(alias string) []string {
		names, _ := m.Host.Run(ctx, "modprobe", "-R", alias)
		return strings.Fields(string(names))
	})
}
