package pivot

import (
	"context"
	"slices"
	"time"

	"machine-pivot/internal/fault"
)

// Trial is a trial of a new system. Until the system is confirmed, the old one stays the default
// of the boot loader, and the new one is booted once.
type Trial struct {
	Old string `json:"old"`           // ID of the deployment that stays the default: Deployment.ID
	New string `json:"new,omitempty"` // ID of the deployment on trial; "" until it is committed, and until that could be journaled: see JournalContent.Before
	// Seconds is the time limit of the trial, counted from the start of its kernel.
	Seconds int      `json:"seconds"`
	Confirm Confirm  `json:"confirm"`
	Checks  []string `json:"checks,omitempty"` // shell commands that must succeed
	// Entered says that the reboot into the new system was requested.
	Entered bool `json:"entered,omitempty"`
	// Confirmed says that the new system is to be kept. It becomes the default afterwards.
	Confirmed bool `json:"confirmed,omitempty"`
}

// Limit returns the time limit of the trial, counted from the start of its kernel.
func (t Trial) Limit() time.Duration { return time.Duration(t.Seconds) * time.Second }

// Confirm says how a system that has proven itself is confirmed.
type Confirm string

const (
	ConfirmByHand Confirm = "hand" // by an administrator, with "pivot confirm"
	ConfirmAuto   Confirm = "auto" // automatically
	// ConfirmProof is for a first boot with the setting fallback=auto: the first boot itself keeps the
	// system as soon as it has proven it. The unit of trials only sees to it that the old system is the
	// default until then.
	ConfirmProof Confirm = "proof"
)

// Trying is a run's request to put the new system on trial.
type Trying struct {
	Trial
	// Fallback says that the setting fallback=auto asks for the trial, and not the command: if
	// CheckUnit or Once fails, there is none.
	Fallback bool
	// CheckUnit returns an error if the system of commit, which is in the repository, lacks the
	// unit that conducts the trial.
	CheckUnit func(commit string) error
	// Once says how the system of a plan is entered only once, as far as that is known, and what that does not cover. The
	// error says why no way is known.
	Once func(Plan) (how string, err error)
	// Deployments returns the IDs of all deployments that have a boot entry, the default first.
	Deployments func() (ids []string, err error)
	// Hold makes the running system the default again, right after the commit.
	Hold func(ctx context.Context) error
}

// TrialState is the state of a trial, seen from the running system.
type TrialState string

const (
	TrialNone  TrialState = "none"  // there is no trial
	TrialWaits TrialState = "waits" // committed in this boot: the reboot is still to come
	TrialRuns  TrialState = "runs"  // this system is on trial
	TrialKept  TrialState = "kept"  // this system is on trial and confirmed: it must become the default
	TrialLost  TrialState = "lost"  // this system has failed its trial: the old one must be booted
	// TrialProves is a system that was entered once, and that its first boot has to prove.
	TrialProves TrialState = "proves"
	TrialOver   TrialState = "over" // another system runs, so the trial has failed: it must be closed
)

// JudgeTrial returns the state of the journal's trial. It is a pure function. booted is the ID of
// the running deployment; sameBoot says that the journal's phase was written in this start.
func JudgeTrial(r JournalContent, booted string, sameBoot bool) TrialState {
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
	case t.Confirm == ConfirmProof:
		return TrialProves
	case r.Phase == PhaseFailed:
		return TrialLost
	}
	return TrialRuns
}

// Demand returns what a trial in this state demands of a run.
func (s TrialState) Demand() Demand {
	switch s {
	case TrialNone:
		return DemandNone
	case TrialWaits, TrialOver:
		return DemandEnd
	case TrialProves:
		return DemandReturn
	}
	return DemandStop
}

// FindNew sets the ID of the deployment on trial if the journal could not be written after the commit, given the IDs of
// all deployments, the default first. It is the one that there was not before or, if its ID is that of an earlier one, the
// one that has become the default. Without it, nothing would tell that deployment from what was there and proven.
func (r *JournalContent) FindNew(all []string) {
	if r.Trial == nil || r.Trial.New != "" || len(all) == 0 {
		return
	}
	found := slices.IndexFunc(all, func(id string) bool { return len(r.Before) > 0 && !slices.Contains(r.Before, id) })
	if found < 0 {
		wasDefault := len(r.Before) > 0 && r.Before[0] == all[0] // an older version has not written Before
		if wasDefault || all[0] == r.Trial.Old {
			return
		}
		found = 0
	}
	r.Trial.New, r.Before = all[found], nil
}

// OnTrial returns the error of a command that may not change a system on trial.
func OnTrial() error {
	return fault.New(fault.Refused, "cannot change this machine: the system that runs is on trial").
		WithHint("pivot confirm keeps it; a reboot goes back to the system before")
}

// NotProven returns the error of a command that may not change a system that its first boot has to
// prove.
func NotProven() error {
	return fault.New(fault.Refused, "cannot change this machine: its first boot is not complete yet, the new system has not been checked").
		WithHint("complete it: pivot firstboot; a reboot starts the old system")
}

// WhyTrialOver returns how a trial that is over has ended, judged by the journal and the running
// deployment; "" if the journal already has the reason.
func WhyTrialOver(r JournalContent, booted string) string {
	t := r.Trial
	switch {
	case r.Error != nil && (r.Phase == PhaseFailed || t.Confirm == ConfirmProof && t.Entered):
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
