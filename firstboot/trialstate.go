package firstboot

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"machine-pivot/pivot"
)

// openTrial reads the journal and says where the trial is, seen from the system that runs.
func (m *Machine) openTrial(ctx context.Context) (pivot.TrialState, error) {
	if err := m.openTimed(ctx); err != nil {
		return "", err
	}
	state, _, err := m.trialState()
	return state, err
}

// trialState says where the trial of the journal is, and which deployment runs.
func (m *Machine) trialState() (state pivot.TrialState, booted string, err error) {
	if m.Progress.Record.Trial == nil {
		return pivot.TrialNone, "", nil
	}
	d, err := m.Host.Sysroot().Booted()
	if err != nil {
		return "", "", err
	}
	id, err := m.Host.BootID()
	if err != nil {
		return "", "", err
	}
	state = pivot.JudgeTrial(m.Progress.Record, d.ID(), m.Progress.Record.BootID == id)
	if trial := m.Progress.Record.Trial; trial.New == "" && state != pivot.TrialWaits && state != pivot.TrialOver {
		trial.New = d.ID()
	}
	return state, d.ID(), nil
}

// lacks names what keeps the system that runs from being confirmed. That something cannot
// be found out is among it, and that it takes longer than the trial may, but for the last
// look, which may take as long as the time between two.
func (m *Machine) lacks(ctx context.Context) []string {
	if since, err := m.Host.Uptime(); err == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, max(m.Progress.Record.Trial.Limit()-since, look), errors.New("the trial is over"))
		defer cancel()
	}
	lacks, err := m.converger().Differences(ctx, m.Progress.Record.Target)
	if err != nil {
		lacks = append(lacks, err.Error())
	}
	if staged, err := m.Host.Sysroot().Staged(); err != nil || staged != nil {
		lacks = append(lacks, "a deployment is staged, which would be the next boot")
	}
	lacks = append(lacks, m.Host.Unhealthy(ctx)...)
	for _, check := range m.Progress.Record.Trial.Checks {
		if _, err := m.Host.Run(ctx, "/bin/sh", "-c", check); err != nil {
			lacks = append(lacks, fmt.Sprintf("check %q fails: %s", check, strings.TrimSpace(strings.TrimPrefix(err.Error(), "/bin/sh -c "+check+":"))))
		}
	}
	return lacks
}
