package pivot

// Decision is what a run has to do, given the intent in the journal and the state of the host.
type Decision struct {
	Action  Action
	Attempt int // the attempt that ActionApply starts or continues
}

// LeadsOn reports whether the decision leads into another system: what it is about is, or becomes, the next boot.
func (d Decision) LeadsOn() bool { return d.Action == ActionApply || d.Action == ActionReboot }

// Action is the kind of a Decision.
type Action string

const (
	// Before there is a plan.
	ActionTrial  Action = "trial"  // the running system is on trial: change nothing
	ActionSettle Action = "settle" // close a trial that is over, or give up one that waits for its reboot; then decide again
	ActionPlan   Action = "plan"   // read what is asked for, and observe the machine

	// With a plan.
	ActionReturn Action = "return" // the running system was entered once and is not the target: go back to the one before
	ActionClose  Action = "close"  // the running system is the target: record and report this
	ActionHold   Action = "hold"   // an administrator returned to this system: stay until "pivot firstboot --again"
	ActionLive   Action = "live"   // change the running system
	ActionRefuse Action = "refuse" // a reboot is needed, and not allowed
	ActionSlot   Action = "slot"   // download, get a slot of the fleet's lock, then plan and decide again
	ActionApply  Action = "apply"  // carry out the plan
	ActionReboot Action = "reboot" // already committed: only reboot
	ActionGiveUp Action = "giveup" // the machine booted the old system on every attempt
)

// Facts are the facts about the host and the run that Decide needs.
type Facts struct {
	Trial           TrialState // of the journal's trial
	Planned         bool       // there is a plan; otherwise only Trial counts
	SameBoot        bool       // the journal's phase was written in this start
	SameTarget      bool       // the journal's target is the one requested now
	AtTarget        bool       // the running system is the target; after a commit, but for what users may change
	PendingAtTarget bool       // the next boot starts the target
	TakenBack       bool       // this first boot was completed in another deployment of the host
	ByHand          bool       // earlier attempts do not count, and none follows
	Trying          bool       // the new system is to go on trial
	Reach           Reach      // of the plan
	NeverReboot     bool       // no reboot is allowed
	Slot            SlotNeed   // of the reboot
}

// Decide implements the state machine as one pure function. docs/dev/states.md has the full table.
//
//	on trial                                  change nothing
//	at the target                             close, whatever the journal says
//	entered once, to be proven                go back
//	taken back                                hold, whatever the journal says
//	judged to need no reboot                  change the running system
//	committed, same boot, target is pending   reboot (the reboot request was lost)
//	by hand                                   apply
//	committed, new boot, not at target        the commit did not hold: next attempt, bounded
//	anything else, such as applying           plan again
func Decide(r JournalContent, f Facts) Decision {
	same := func(a Action) Decision { return Decision{Action: a, Attempt: r.Attempt} }
	switch {
	case f.Trial == TrialRuns || f.Trial == TrialKept || f.Trial == TrialLost:
		return same(ActionTrial)
	case !f.Planned && (f.Trial == TrialWaits || f.Trial == TrialOver):
		return same(ActionSettle)
	case !f.Planned:
		return same(ActionPlan)
	case f.AtTarget, f.Reach == ReachNone:
		return same(ActionClose)
	case f.Trial == TrialProves:
		return same(ActionReturn)
	case f.TakenBack:
		return same(ActionHold)
	case f.Reach == ReachRunning:
		return same(ActionLive)
	case f.NeverReboot:
		return same(ActionRefuse)
	case f.Slot == SlotWanted:
		return same(ActionSlot)
	}
	return decideBoot(r, f)
}

// decideBoot decides about a change of the next boot that nothing forbids.
func decideBoot(r JournalContent, f Facts) Decision {
	committed := r.Phase == PhaseCommitted && f.SameTarget
	switch {
	case committed && f.SameBoot && f.PendingAtTarget && f.Trial == TrialNone && !f.Trying:
		return Decision{Action: ActionReboot, Attempt: r.Attempt}
	case f.ByHand, !f.SameTarget:
		return Decision{Action: ActionApply, Attempt: 1}
	case committed && !f.SameBoot:
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
