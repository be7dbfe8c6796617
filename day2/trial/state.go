package trial

import (
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/pivot"
)

// State returns the state of the journal's trial, seen from the running system, and why it has
// failed if it is over. It needs no lock.
func (c *Conductor) State() (state State, failed *pivot.Failure, err error) {
	state, booted, err := c.judge()
	if err == nil && state == Over {
		failed = c.failure(booted)
	}
	return state, failed, err
}

// judge returns the state of the journal's trial and the ID of the running deployment.
func (c *Conductor) judge() (state State, booted string, err error) {
	t, err := In(c.Progress.Content)
	if err != nil || t == nil {
		return None, "", err
	}
	d, err := c.Host.Sysroot().Booted()
	if err != nil {
		return "", "", err
	}
	id, err := c.Host.Start()
	if err != nil {
		return "", "", err
	}
	all, err := c.all()
	if err != nil {
		return "", "", err
	}
	t.FindNew(c.remembered().Before, all)
	state = t.Judge(c.Progress.Content.Phase, d.ID(), c.Progress.Content.BootID == id)
	if t.Confirm == ConfirmProof && (state == Proves || state == Kept) && c.provenUnjournaled(d.ID()) {
		state, t.Confirmed = Kept, true
	}
	if t.New == "" && state != Waits && state != Over {
		t.New = d.ID()
	}
	return state, d.ID(), t.KeepIn(&c.Progress.Content)
}

// provenUnjournaled reports whether the first boot has proven the running system and could not journal that: it has
// closed its file there, which was open when the system was committed. It completes the journal's content.
func (c *Conductor) provenUnjournaled(booted string) bool {
	request, err := c.ClosedFirstBoot()
	if err != nil || request == "" { // what cannot be read is not proven
		return false
	}
	return machine.Closing{Deployment: booted, Request: string(request)}.KeepIn(&c.Progress.Content) == nil
}

// failure returns why a trial that is over has failed: the journal's error, or else how its boot
// has ended.
func (c *Conductor) failure(booted string) *pivot.Failure {
	why := c.trial().WhyOver(c.Progress.Content, booted)
	if why == "" {
		return c.Progress.Content.Error
	}
	text := "the new system has failed its trial: %s"
	if c.trial().Confirm == ConfirmProof {
		text = "the new system was not proven: %s"
	}
	return pivot.FailureOf(fault.New(fault.Refused, text, why).WithHint(failedHint))
}

const failedHint = "see the journal of its boot (journalctl -b -1); the same command tries it again"
