// Package node is the node agent: it gives the machine that it runs on the MachineConfig that the
// Node object names, and says in the cluster how far that is. What it changes on the machine, pivot
// changes (package hostpivot). Each step begins with the facts, so an agent that was killed continues.
package node

// Action is what the agent does next.
type Action string

// The actions.
const (
	ActionRest     Action = "rest"     // nothing, until something happens
	ActionWait     Action = "wait"     // for a run of pivot, or for a trial
	ActionStop     Action = "stop"     // the run that is no longer wanted
	ActionBegin    Action = "begin"    // say that the change is being made
	ActionDownload Action = "download" // make pivot check the change, and pull its image
	ActionPrefetch Action = "prefetch" // the same for a MachineConfig with a later turn
	ActionPlan     Action = "plan"     // ask pivot what the change needs
	ActionRehearse Action = "rehearse" // the drain, by a dry run
	ActionCordon   Action = "cordon"   // cordon the node, and ask for its drain
	ActionDrain    Action = "drain"    // empty the node, or wait for the controller that does
	ActionAnnounce Action = "announce" // say that the node will reboot
	ActionApply    Action = "apply"    // make pivot change the machine, and reboot it if need be
	ActionRevert   Action = "revert"   // make pivot give up the next boot
	ActionProve    Action = "prove"    // compare the running system with its MachineConfig
	ActionUncordon Action = "uncordon" // the node, or ask for it
	ActionDone     Action = "done"     // say that the node has what is desired
	ActionReport   Action = "report"   // say what has failed
)

// Decide implements the state machine of the agent as one pure function. docs/dev/agent.md has the table.
func Decide(f Facts) Action {
	switch {
	case f.Run == RunRunning:
		return ActionWait
	case f.Run == RunOutdated:
		return ActionStop
	case !f.Managed && f.Ours:
		return ActionUncordon
	case !f.Managed:
		return ActionRest
	case f.System == SystemTrial:
		return ActionWait
	case f.System == SystemTarget:
		return atTarget(f)
	case f.Failed:
		return release(f, ActionReport)
	case !f.Reported:
		return ActionBegin
	case f.System == SystemReverting:
		return ActionRevert
	case f.System == SystemOther:
		return ActionDownload
	}
	return carryOut(f)
}

// atTarget decides for a node that runs the desired system. One that fails its proof stays cordoned.
func atTarget(f Facts) Action {
	switch {
	case f.Failed && !f.Reported:
		return ActionReport
	case f.Failed:
		return ActionRest
	case !f.Proven:
		return ActionProve
	}
	if action := release(f, ActionDone); action != ActionRest || !f.Prefetch {
		return action
	}
	return ActionPrefetch
}

// release ends the agent's cordon, then says what is the case, then rests.
func release(f Facts, say Action) Action {
	switch {
	case f.Ours:
		return ActionUncordon
	case !f.Reported:
		return say
	}
	return ActionRest
}

// carryOut decides for a host that has everything for the change. Nothing here needs the network, but
// the cluster's API.
func carryOut(f Facts) Action {
	switch f.Change {
	case ChangeUnknown:
		return ActionPlan
	case ChangeLive:
		return ActionApply
	}
	switch {
	case f.Drain == DrainAnnounced, f.Drain == DrainComplete && f.Change == ChangeDrain:
		return ActionApply
	case f.Drain == DrainComplete, f.Change == ChangeSingle:
		return ActionAnnounce
	case f.Drain == DrainRequested:
		return ActionDrain
	case !f.Rehearsed:
		return ActionRehearse
	}
	return ActionCordon
}
