package trial

import (
	"cmp"
	"slices"
	"time"

	"machine-pivot/pivot"
)

// Name is the name of this feature: of its part of the journal and of its stamp, for which Unit is started.
const Name = "trial"

// nameDeployments is the name of the part of the journal with deployments.
const nameDeployments = "trial-deployments"

// Trial is a trial of a new system. Until the system is confirmed, the old one stays the default
// of the boot loader, and the new one is booted once.
type Trial struct {
	Old string `json:"old"`           // ID of the deployment that stays the default: Deployment.ID
	New string `json:"new,omitempty"` // ID of the deployment on trial; "" as long as the journal does not have it. See FindNew.
	// Seconds is the time limit of the trial, counted from the start of its kernel.
	Seconds int      `json:"seconds"`
	Confirm Confirm  `json:"confirm"`
	Checks  []string `json:"checks,omitempty"` // shell commands that must succeed
	// Entered says that the reboot into the new system was requested.
	Entered bool `json:"entered,omitempty"`
	// Confirmed says that the new system is to be kept. It becomes the default afterwards.
	Confirmed bool `json:"confirmed,omitempty"`
}

// deployments are the deployments that the journal remembers.
type deployments struct {
	// Before are the IDs of those that there were before the commit of a trial, by which the new one is found if the
	// journal cannot be written afterwards. They are dropped as soon as it has Trial.New.
	Before []string `json:"before,omitempty"`
	// Unproven is the ID of one that has failed its trial, as long as it stays. "" if there is none.
	Unproven string `json:"unproven,omitempty"`
}

// In returns the trial in a journal; nil if there is none.
func In(r pivot.JournalContent) (*Trial, error) { return pivot.PartOf[Trial](r, Name) }

// KeepIn sets the trial in a journal.
func (t Trial) KeepIn(r *pivot.JournalContent) error {
	return r.SetPart(Name, t, pivot.Part{Stamp: true, Holds: true})
}

func (d deployments) keepIn(r *pivot.JournalContent) error {
	part := pivot.Part{}
	switch {
	case d.Unproven != "":
		part.Avoids = []string{d.Unproven}
	case len(d.Before) == 0:
		r.DropPart(nameDeployments)
		return nil
	}
	return r.SetPart(nameDeployments, d, part)
}

// trial returns the trial in the journal, which judge has found to be usable; zero if there is none.
func (c *Conductor) trial() (t Trial) {
	if in, err := In(c.Progress.Content); err == nil && in != nil {
		t = *in
	}
	return t
}

// change changes the trial in the journal's content.
func (c *Conductor) change(by func(*Trial)) error {
	t := c.trial()
	by(&t)
	return t.KeepIn(&c.Progress.Content)
}

// over drops the trial from the journal's content. unproven is the deployment on trial if it was not proven, else "".
func (c *Conductor) over(unproven string) error {
	known := c.remembered()
	c.Progress.Content.DropPart(Name)
	return deployments{Unproven: cmp.Or(unproven, known.Unproven)}.keepIn(&c.Progress.Content)
}

// remembered returns the deployments in the journal; zero if there are none, or if they cannot be used: they only tell
// what the host shows without them as a rule.
func (c *Conductor) remembered() (d deployments) {
	if in, err := pivot.PartOf[deployments](c.Progress.Content, nameDeployments); err == nil && in != nil {
		d = *in
	}
	return d
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

// State is the state of a trial, seen from the running system.
type State string

const (
	None  State = "none"  // there is no trial
	Waits State = "waits" // committed in this boot: the reboot is still to come
	Runs  State = "runs"  // this system is on trial
	Kept  State = "kept"  // this system is on trial and confirmed: it must become the default
	Lost  State = "lost"  // this system has failed its trial: the old one must be booted
	// Proves is a system that was entered once, and that its first boot has to prove.
	Proves State = "proves"
	Over   State = "over" // another system runs, so the trial has failed: it must be closed
)

// Judge returns the state of a trial; nil: there is none. It is a pure function. phase is the journal's, and sameBoot says
// that it was written in this start. booted is the ID of the running deployment.
func (t *Trial) Judge(phase pivot.Phase, booted string, sameBoot bool) State {
	switch {
	case t == nil:
		return None
	case t.New == "" && booted == t.Old, t.New != "" && booted != t.New:
		if phase == pivot.PhaseCommitted && sameBoot && booted == t.Old {
			return Waits
		}
		return Over
	case t.Confirmed:
		return Kept
	case t.Confirm == ConfirmProof:
		return Proves
	case phase == pivot.PhaseFailed:
		return Lost
	}
	return Runs
}

// Demand returns what a trial in this state demands of a run.
func (s State) Demand() pivot.Demand {
	switch s {
	case None:
		return pivot.DemandNone
	case Waits, Over:
		return pivot.DemandEnd
	case Proves:
		return pivot.DemandReturn
	}
	return pivot.DemandStop
}

// FindNew sets the ID of the deployment on trial if the journal could not be written after the commit. before and all are
// the IDs of the deployments before the commit and now, the default first. The one on trial is the one that there was not before or, if its ID is that of an
// earlier one, the one that has become the default. Without it, nothing would tell that deployment from what was there and
// proven.
func (t *Trial) FindNew(before, all []string) {
	if t.New != "" || len(all) == 0 {
		return
	}
	found := slices.IndexFunc(all, func(id string) bool { return len(before) > 0 && !slices.Contains(before, id) })
	if found < 0 {
		wasDefault := len(before) > 0 && before[0] == all[0]
		if wasDefault || all[0] == t.Old {
			return
		}
		found = 0
	}
	t.New = all[found]
}

// WhyOver returns how a trial that is over has ended, judged by the journal and the running
// deployment; "" if the journal already has the reason.
func (t Trial) WhyOver(r pivot.JournalContent, booted string) string {
	switch {
	case r.Error != nil && (r.Phase == pivot.PhaseFailed || t.Confirm == ConfirmProof && t.Entered):
		return ""
	case booted != t.Old:
		return "deployment " + booted + " was booted in its place"
	case t.Confirmed:
		return "it was confirmed, but its boot ended before the boot loader was told"
	case r.Phase == pivot.PhaseTrial:
		return "it came up, but its boot ended before it was confirmed"
	case t.Entered:
		return "it never came up"
	}
	return "the machine was rebooted before it was to be entered"
}
