package machine

import (
	"context"
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
	devices := rehearse.Devices(m.Host.Root)
	for i := range devices {
		// Without an answer, nothing is judged of the device.
		names, _ := m.Host.Run(ctx, "modprobe", "-R", devices[i].Alias)
		devices[i].Modules = strings.Fields(string(names))
	}
	stage := rehearse.Stage{Self: m.Self, Repo: m.Host.Sysroot().RepoPath()}
	found, err = stage.Judge(ctx, next, running, plan.Kargs.Final, devices)
	return append(found, m.judgeKernel(plan, next, running)...), err
}
