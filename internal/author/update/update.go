// Package update describes what an update from one MachineConfig to another means for a machine in a cluster:
// differences, what the machine-config daemon refuses, its reboot, and its actions instead.
//
// It predicts what the machine-config operator does, by the tables in internal/disruption and by its
// functions newMachineConfigDiff, IsRenderedConfigReconcilable and
// calculatePostConfigChangeNodeDisruptionAction, all at the same commit. It leaves out on-cluster
// layering, of which a MachineConfig says nothing. The package does no I/O.
package update

import (
	"fmt"
	"slices"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
)

// Update is the differences between two MachineConfigs and their consequences.
type Update struct {
	Changes []Change `json:"changes"`
	// Refused reports whether the machine-config daemon refuses a change on a running machine. It
	// then makes none of the changes.
	Refused bool `json:"refused"`
	Reboot  bool `json:"reboot"`
	// Actions are the actions instead of the operator's reboot, in order. If Reboot is true
	// nevertheless, one of them ends the system.
	Actions []disruption.Action `json:"actions"`
	// Notes are what else is worth knowing.
	Notes []string `json:"notes"`
}

// Change is one difference.
type Change struct {
	Kind   string `json:"kind"`             // image, kernel arguments, file, directory, link, unit, …
	Name   string `json:"name,omitempty"`   // a path, or a unit's name
	Action string `json:"action"`           // add, change or remove
	Detail string `json:"detail,omitempty"` // what is different
	// Actions are the actions that the change needs, or a reboot; empty if it is refused.
	Actions []disruption.Action `json:"actions"`
	Because string              `json:"because,omitempty"` // the rule that selects the actions
	Refused string              `json:"refused,omitempty"` // why the machine-config daemon refuses it
}

// String describes the change in one line.
func (c Change) String() string {
	text := c.Action + " " + c.Kind
	if c.Name != "" {
		text += " " + c.Name
	}
	if c.Detail != "" {
		text += " (" + c.Detail + ")"
	}
	return text
}

// Values of Change.Action.
const (
	actionAdd    = "add"
	actionChange = "change"
	actionRemove = "remove"
)

// Between returns the update from one MachineConfig to another.
func Between(old, new *authored.MachineConfig, policy disruption.Cluster) (Update, error) {
	d := differ{policy: policy, room: ignition.NewRoom(ignition.MaxContent, maxContents), update: Update{Changes: []Change{}, Actions: []disruption.Action{}, Notes: []string{}}}
	d.release(new)
	d.system(old.Spec, new.Spec)
	was, is := value(old.Spec.Config), value(new.Spec.Config)
	if err := d.files(was, is); err != nil {
		return Update{}, err
	}
	d.units(was, is)
	d.accounts(was, is)
	d.sections(was, is)
	d.conclude()
	return d.update, nil
}

// differ collects changes.
type differ struct {
	policy disruption.Cluster
	update Update
	room   *ignition.Room // for contents
}

func (d *differ) add(c Change) {
	if c.Refused != "" || c.Actions == nil {
		c.Actions, c.Because = []disruption.Action{}, ""
	}
	d.update.Changes = append(d.update.Changes, c)
}

func (d *differ) note(format string, args ...any) {
	d.update.Notes = append(d.update.Notes, fmt.Sprintf(format, args...))
}

// releaseAnnotation has the release of OpenShift of the operator that rendered a MachineConfig.
const releaseAnnotation = "machineconfiguration.openshift.io/release-image-version"

// release notes if the operator that applies the new MachineConfig is not one that the tables
// describe.
func (d *differ) release(new *authored.MachineConfig) {
	version, known := new.Annotations[releaseAnnotation]
	if !known {
		return
	}
	var have [2]int
	_, err := fmt.Sscanf(version, "%d.%d", &have[0], &have[1])
	oldest, newest := disruption.OperatorReleases()
	if err == nil && slices.Compare(have[:], oldest[:]) >= 0 && slices.Compare(have[:], newest[:]) <= 0 {
		return
	}
	d.note("the operator of release %s is unknown: what follows is by the tables of %d.%d to %d.%d, as of %s",
		problem.Quoted(version), oldest[0], oldest[1], newest[0], newest[1], disruption.OperatorDate)
}

// conclude derives the result from all changes, as the operator does: a refusal or a reboot replaces all
// actions, and None counts only if there is nothing else. Drains come first. An action that several
// changes need is shown once.
func (d *differ) conclude() {
	u := &d.update
	for _, c := range u.Changes {
		u.Refused = u.Refused || c.Refused != ""
		for _, a := range c.Actions {
			u.Reboot = u.Reboot || a.Type == disruption.Reboot
			if !slices.Contains(u.Actions, a) {
				u.Actions = append(u.Actions, a)
			}
		}
	}
	if u.Refused {
		u.Reboot = false
	}
	if u.Refused || u.Reboot {
		u.Actions = []disruption.Action{}
	}
	if len(u.Actions) > 1 {
		u.Actions = slices.DeleteFunc(u.Actions, func(a disruption.Action) bool { return a.Type == disruption.None })
	}
	slices.SortStableFunc(u.Actions, func(a, b disruption.Action) int { return rank(a) - rank(b) })
	for _, a := range u.Actions {
		if a.Type == disruption.Restart && disruption.Ends(a.Service) {
			u.Reboot = true
			d.note("a restart of %s ends the system or restarts all of its services, without a drain", a.Service)
		}
	}
}

// rank is 0 for a drain and 1 for what the operator does after it, in the order that the policy has.
func rank(a disruption.Action) int {
	if a.Type == disruption.Drain {
		return 0
	}
	return 1
}
