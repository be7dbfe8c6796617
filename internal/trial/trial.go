// Package trial has a new system prove itself before it is kept.
//
// Failing is what happens by itself, and confirming what somebody does: the new system is
// committed like any other, but the old one stays the default and the new one is entered
// once. So it needs nobody who counts boots to come back from a kernel that hangs.
//
// Its steps are methods of Conductor. In the old system Try asks for a trial, and Enter boots
// the new one. There Conduct decides by itself, or Confirm for somebody. Back in the old system
// Conduct closes a trial that has failed; AllowChange does so too, before any other change. The
// journal carries the trial from step to step (pivot.Trial), and pivot.JudgeTrial says from it
// where the trial is.
package trial

import (
	"context"
	"time"

	"machine-pivot/internal/host"
	"machine-pivot/pivot"
)

// Unit conducts a trial in the new system, and closes it in the old one.
const Unit = "pivot-trial.service"

// unitWants is the link that enables the unit.
const unitWants = "/etc/systemd/system/sysinit.target.wants/" + Unit

// Look is the time between two looks at a system on trial.
const Look = 5 * time.Second

// TryAgain is what to do about a system on trial that could not be entered: no other reboot
// enters it.
const TryAgain = "the next boot is the system that runs; the same command tries the new one again"

// Terms are how a new system has to prove itself.
type Terms struct {
	For     time.Duration // from the start of its kernel; whole seconds
	Confirm pivot.Confirm
	Checks  []string // commands of the shell that must succeed
}

// Conductor takes a trial from one state to the next, on one machine. Whoever calls a method
// has opened the journal and has the machine's lock, unless the method says otherwise.
type Conductor struct {
	Host     *host.Host
	Progress *pivot.Progress
	// Differences are those of the system that runs from what was last asked for.
	Differences func(ctx context.Context) ([]string, error)
	// Reboot asks for a reboot by a function, as often as that may help, and then waits for it:
	// it returns when the context ends. into names what is booted, and hint is what to do if the
	// reboot cannot be had.
	Reboot func(ctx context.Context, into, hint string, by func(context.Context) error) error

	said string // last of what the system lacks
}
