package pivot

// Decision is what a run has to do, given the intent in the journal and the state of the host.
type Decision struct {
	Action  Action
	Attempt int // the attempt that ActionApply starts or continues
}

// Action is the kind of a Decision.
type Action string

const (
	ActionApply  Action = "apply"  // plan and carry out the plan
	ActionReboot Action = "reboot" // already committed: only reboot
	ActionClose  Action = "close"  // the running system is the target: record and report this
	ActionGiveUp Action = "giveup" // the machine booted the old system on every attempt
	ActionHold   Action = "hold"   // an administrator returned to this system: stay until "pivot firstboot --again"
)

// Facts are the facts about the host that Decide needs.
type Facts struct {
	SameBoot        bool // the journal's phase was written in this boot
	SameTarget      bool // the journal's target is the one requested now
	AtTarget        bool // the running system is the target; after a commit, but for what users may change
	PendingAtTarget bool // the next boot starts the target
	TakenBack       bool // this first boot was completed in another deployment of the host
}

// Decide implements the state machine as one pure function. docs/states.md has the full table.
//
//	at the target                             close, whatever the journal says
//	taken back                                hold, whatever the journal says
//	committed, same boot, target is pending   reboot (the reboot request was lost)
//	committed, new boot, not at target        the commit did not hold: next attempt, bounded
//	anything else, such as applying           plan again
func Decide(r Record, f Facts) Decision {
	switch {
	case f.AtTarget:
		return Decision{Action: ActionClose, Attempt: r.Attempt}
	case f.TakenBack:
		return Decision{Action: ActionHold, Attempt: r.Attempt}
	case !f.SameTarget:
		return Decision{Action: ActionApply, Attempt: 1}
	case r.Phase == PhaseCommitted && f.SameBoot && f.PendingAtTarget:
		return Decision{Action: ActionReboot, Attempt: r.Attempt}
	case r.Phase == PhaseCommitted && !f.SameBoot:
		return nextAttempt(r.Attempt)
	case r.Phase == PhaseFailed && r.Attempt >= MaxAttempts:
		return Decision{Action: ActionGiveUp, Attempt: r.Attempt}
	}
	return Decision{Action: ActionApply, Attempt: max(r.Attempt, 1)}
}

func nextAttempt(attempt int) Decision {
	if attempt >= MaxAttempts {
		return Decision{Action: ActionGiveUp, Attempt: attempt}
	}
	return Decision{Action: ActionApply, Attempt: attempt + 1}
}
