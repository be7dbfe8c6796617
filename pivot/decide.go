package pivot

import (
	"slices"
	"strings"
)

// Decision is what a run has to do, given the intent in the journal and the state of the host.
type Decision struct {
	Action  Action
	Attempt int // the attempt that ActionApply starts or continues
	// Demand is what ActionYield yields to; with ActionRefuse, DemandStop is the reason.
	Demand Demand
	Why    error // of the demand; only Converger.Decide sets it
}

// LeadsOn reports whether the decision is for another system: what it is about is, or becomes, the next boot.
func (d Decision) LeadsOn() bool { return d.Action == ActionApply || d.Action == ActionReboot }

// Yields reports whether a decision yields to a demand.
func (d Decision) Yields(to Demand) bool { return d.Action == ActionYield && d.Demand == to }

// Action is the kind of a Decision.
type Action string

const (
	ActionPlan   Action = "plan"   // before there is a plan: read what is asked for, and observe the machine
	ActionYield  Action = "yield"  // do what is demanded; if there is no plan yet, decide again afterwards
	ActionClose  Action = "close"  // the running system is the target: record and report this
	ActionLive   Action = "live"   // change the running system
	ActionRefuse Action = "refuse" // a reboot is needed, and not allowed; or nothing may change
	ActionWait   Action = "wait"   // download, wait, then plan and decide again
	ActionApply  Action = "apply"  // carry out the plan
	ActionReboot Action = "reboot" // already committed: only reboot
	ActionGiveUp Action = "giveup" // the machine booted the old system on every attempt
)

// Demand is what a feature, or an administrator who went back, demands of a run. If several things demand something, the greatest demand counts.
type Demand int

const (
	DemandNone   Demand = iota
	DemandAnew          // what is committed in this boot is not enough: commit it again
	DemandEnd           // end what an earlier change has left; with a plan as DemandAnew
	DemandWait          // wait for somebody else before the next boot changes
	DemandStay          // stay on the running system, whatever is asked for: until "pivot firstboot --again"
	DemandReturn        // the running system was entered once: unless it is the target, go back to the one before
	DemandStop          // the running system has to prove itself: change nothing
)

func (d Demand) String() string {
	return [...]string{"none", "anew", "end", "wait", "stay", "return", "stop"}[d]
}

// Facts are the facts about the host and the run that Decide needs.
type Facts struct {
	Demand          Demand
	Planned         bool  // there is a plan; otherwise only Demand counts
	SameBoot        bool  // the journal's phase was written in this start
	SameTarget      bool  // the journal's target is the one requested now
	AtTarget        bool  // the running system is the target; after a commit, but for what users may change
	PendingAtTarget bool  // the next boot starts the target
	ByHand          bool  // earlier attempts do not count, and none follows
	Reach           Reach // of the plan
	NeverReboot     bool  // no reboot is allowed
}

// Row is a row of the table by which Decide decides. A field is a list of the values for which the row applies, "" for
// any.
type Row struct {
	Demand, Planned, AtTarget, Reach, NeverReboot      string
	Phase, Last, SameTarget, SameBoot, Pending, ByHand string // Last: the attempt is MaxAttempts
	Action                                             Action
	Next                                               string // the attempt: "" for the same, "1", or "+1"
}

// Inputs returns the fields that are compared with the facts, in the order of the fields.
func (r Row) Inputs() []string {
	return []string{r.Demand, r.Planned, r.AtTarget, r.Reach, r.NeverReboot, r.Phase, r.Last, r.SameTarget, r.SameBoot, r.Pending, r.ByHand}
}

// Decisions returns the table by which Decide decides: the first row that applies. docs/dev/states.md shows it.
func Decisions() []Row {
	const yes, no = "yes", "no"
	return []Row{
		{Demand: "stop", Action: ActionRefuse},
		{Planned: no, Demand: "end", Action: ActionYield},
		{Planned: no, Action: ActionPlan},
		{AtTarget: yes, Action: ActionClose},
		{Reach: string(ReachNone), Action: ActionClose},
		{Demand: "return, stay", Action: ActionYield},
		{Reach: string(ReachRunning), Action: ActionLive},
		{NeverReboot: yes, Action: ActionRefuse},
		{Demand: "wait", Action: ActionWait},
		{Demand: "none", Phase: string(PhaseCommitted), SameTarget: yes, SameBoot: yes, Pending: yes, Action: ActionReboot},
		{ByHand: yes, Action: ActionApply, Next: "1"},
		{SameTarget: no, Action: ActionApply, Next: "1"},
		{Phase: string(PhaseCommitted), SameBoot: no, Last: yes, Action: ActionGiveUp},
		{Phase: string(PhaseCommitted), SameBoot: no, Action: ActionApply, Next: "+1"},
		{Phase: string(PhaseFailed), Last: yes, Action: ActionGiveUp},
		{Action: ActionApply},
	}
}

// Decide implements the state machine as one pure function, by the table Decisions.
func Decide(r JournalContent, f Facts) Decision {
	all := Decisions()
	row := all[slices.IndexFunc(all, func(row Row) bool { return row.Fits(r, f) })] // the last one fits always
	d := Decision{Action: row.Action, Attempt: r.Attempt, Demand: f.Demand}
	switch row.Next {
	case "1":
		d.Attempt = 1
	case "+1":
		d.Attempt++
	}
	if d.Action == ActionApply {
		d.Attempt = max(d.Attempt, 1)
	}
	return d
}

// Fits reports whether a row applies.
func (r Row) Fits(j JournalContent, f Facts) bool {
	is := Row{
		Demand: f.Demand.String(), Planned: yesNo(f.Planned), AtTarget: yesNo(f.AtTarget), Reach: string(f.Reach), NeverReboot: yesNo(f.NeverReboot),
		Phase: string(j.Phase), Last: yesNo(j.Attempt >= MaxAttempts), SameTarget: yesNo(f.SameTarget), SameBoot: yesNo(f.SameBoot), Pending: yesNo(f.PendingAtTarget), ByHand: yesNo(f.ByHand),
	}.Inputs()
	for i, wanted := range r.Inputs() {
		if wanted != "" && !slices.Contains(strings.Split(wanted, ", "), is[i]) {
			return false
		}
	}
	return true
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
