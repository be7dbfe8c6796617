package machine

import (
	"context"
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/rehearse"
	"machine-pivot/pivot"
)

// rehearse asks programs of a plan's new system, whose image is in the repository, whether this machine can start it.
func (m *Machine) rehearse(ctx context.Context, plan pivot.Plan) (notes []string, err error) {
	if m.Self == "" {
		return nil, nil
	}
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
	return stage.Judge(ctx, next, running, plan.Kargs.Final, devices)
}
