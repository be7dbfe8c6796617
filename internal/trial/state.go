package trial

import (
	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
)

// State says where the trial of the journal is, seen from the system that runs; and of one that
// is over, what it has failed of. It needs no lock.
func (c *Conductor) State() (state pivot.TrialState, failed *pivot.Failure, err error) {
	state, booted, err := c.judge()
	if err == nil && state == pivot.TrialOver {
		failed = c.failure(booted)
	}
	return state, failed, err
}

// judge says where the trial of the journal is, and which deployment runs.
func (c *Conductor) judge() (state pivot.TrialState, booted string, err error) {
	if c.Progress.Record.Trial == nil {
		return pivot.TrialNone, "", nil
	}
	d, err := c.Host.Sysroot().Booted()
	if err != nil {
		return "", "", err
	}
	id, err := c.Host.BootID()
	if err != nil {
		return "", "", err
	}
	state = pivot.JudgeTrial(c.Progress.Record, d.ID(), c.Progress.Record.BootID == id)
	if trial := c.Progress.Record.Trial; trial.New == "" && state != pivot.TrialWaits && state != pivot.TrialOver {
		trial.New = d.ID()
	}
	return state, d.ID(), nil
}

// failure is what a trial that is over has failed of: the journal's error, or, if that has none,
// how its boot has ended.
func (c *Conductor) failure(booted string) *pivot.Failure {
	why := pivot.WhyTrialOver(c.Progress.Record, booted)
	if why == "" {
		return c.Progress.Record.Error
	}
	return pivot.FailureOf(fault.New(fault.Refused, "the new system has failed its trial: %s", why).WithHint(failedHint))
}

const failedHint = "see the journal of its boot (journalctl -b -1); the same again tries it again"
