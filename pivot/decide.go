package pivot

// Decision is what a run has to do, given what was meant and what is true.
type Decision struct {
	Action  Action
	Attempt int // the attempt that ActionApply starts or goes on with
}

// Action is the kind of a Decision.
type Action string

const (
	ActionApply  Action = "apply"  // plan and carry out
	ActionReboot Action = "reboot" // committed already: only the reboot is missing
	ActionClose  Action = "close"  // at the target: nothing to do but to say so
	ActionGiveUp Action = "giveup" // keeps coming up on the old system
	ActionHold   Action = "hold"   // somebody went back to this system: theirs to say when it goes forward
)

// Facts are what Decide needs to know of the host.
type Facts struct {
	SameBoot        bool // the journal's phase was written in this boot
	SameTarget      bool // the journal is about the target asked for now
	AtTarget        bool // what runs is the target
	PendingAtTarget bool // what the next boot starts is the target
	TakenBack       bool // this first boot was completed in another deployment of the host
}

// Decide is the state machine, as one pure function.
//
//	at the target                          close, whatever was meant
//	taken back                             hold still, whatever was meant since
//	committed, same boot, pending is it    reboot (the request was lost)
//	committed, new boot, not at target     the commit did not hold: next attempt, bounded
//	applying or failed, and anything else  plan again
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
