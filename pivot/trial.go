package pivot

import (
	"context"
	"time"
)

// Trial is how a new system has to prove itself before it is the default. Until somebody
// confirms it the old system is what the boot loader starts by itself, and the new one is
// entered once.
type Trial struct {
	Old string `json:"old"`           // the deployment that stays the default meanwhile: Deployment.ID
	New string `json:"new,omitempty"` // the one on trial; "" if the commit did not come so far as to tell
	// Seconds is how long it may take, from the start of its kernel.
	Seconds int      `json:"seconds"`
	Confirm Confirm  `json:"confirm"`
	Checks  []string `json:"checks,omitempty"` // commands of the shell that must succeed
	// Entered says that the reboot into the new system was asked for.
	Entered bool `json:"entered,omitempty"`
	// Confirmed says that somebody wants it for good. The boot loader learns of it afterwards.
	Confirmed bool `json:"confirmed,omitempty"`
}

// Limit is how long the trial may take, from the start of its kernel.
func (t Trial) Limit() time.Duration { return time.Duration(t.Seconds) * time.Second }

// Confirm is who confirms a system that has proven itself.
type Confirm string

const (
	ConfirmByHand Confirm = "hand" // somebody, with "pivot confirm"
	ConfirmAuto   Confirm = "auto" // nobody: the proof is enough
)

// Trying is a run's wish that the new system is tried.
type Trying struct {
	Trial
	// Accept is an error if nobody would prove the system of a commit, which is in the
	// repository.
	Accept func(commit string) error
	// Hold makes the system that runs the default again, right after the commit, and
	// returns the deployment that was committed.
	Hold func(ctx context.Context) (deployment string, err error)
}

// TrialState is where a trial is, seen from the system that runs.
type TrialState string

const (
	TrialNone  TrialState = "none"  // there is none
	TrialWaits TrialState = "waits" // committed in this boot: only the reboot is missing
	TrialRuns  TrialState = "runs"  // this is the system on trial
	TrialKept  TrialState = "kept"  // this is it, and it is confirmed: it has to become the default
	TrialLost  TrialState = "lost"  // this is it, and it has failed: the old one has to be booted
	TrialOver  TrialState = "over"  // another system runs, so it has failed: it has to be closed
)

// JudgeTrial says where the trial of a record is, as one pure function. booted is the
// deployment that runs; sameBoot: the journal's phase was written in this boot.
func JudgeTrial(r Record, booted string, sameBoot bool) TrialState {
	t := r.Trial
	switch {
	case t == nil:
		return TrialNone
	case t.New == "" && booted == t.Old, t.New != "" && booted != t.New:
		if r.Phase == PhaseCommitted && sameBoot && booted == t.Old {
			return TrialWaits
		}
		return TrialOver
	case t.Confirmed:
		return TrialKept
	case r.Phase == PhaseFailed:
		return TrialLost
	}
	return TrialRuns
}

// WhyTrialOver says of a trial that is over how it ended, as far as the journal and the
// deployment that runs tell; "" if the journal has the reason already.
func WhyTrialOver(r Record, booted string) string {
	t := r.Trial
	switch {
	case r.Phase == PhaseFailed && r.Error != nil:
		return ""
	case booted != t.Old:
		return "deployment " + booted + " was booted in its place"
	case t.Confirmed:
		return "it was confirmed, but its boot ended before the boot loader was told"
	case r.Phase == PhaseTrial:
		return "it came up, but its boot ended before it was confirmed"
	case t.Entered:
		return "it never came up"
	}
	return "the machine was rebooted before it was to be entered"
}
