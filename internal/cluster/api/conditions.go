package api

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineConfigNodeStatus is what the agent writes of the status of a MachineConfigNode, in which
// OpenShift shows the progress of a node's update.
type MachineConfigNodeStatus struct {
	Conditions    []metav1.Condition `json:"conditions"`
	ConfigVersion ConfigVersion      `json:"configVersion"`
}

// ConfigVersion are the MachineConfigs in a MachineConfigNode.
type ConfigVersion struct {
	Current string `json:"current,omitempty"` // left out by a node that has none yet: OpenShift's schema wants a name
	Desired string `json:"desired"`
}

// The statuses of a condition.
const (
	True    = "True"
	False   = "False"
	Unknown = "Unknown" // of a MachineConfigNode: it is happening
)

// Stage is a part of a node's update, in their order.
type Stage int

// The stages.
const (
	StageNone    Stage = iota // no update
	StagePrepare              // checks, download, rehearsal
	StageDrain
	StageApply  // until the next boot, or the running system, is changed
	StageReboot // and the proof of what runs then
	StageResume // the node is given back
)

// Progressed is what a node's update is at.
type Progressed struct {
	Stage    Stage
	Emptied  bool   // it needs a drain
	Config   string // that is desired
	Waiting  string // what the stage waits for, such as a budget that forbids the drain; "" for nothing
	Degraded string // why the node is degraded; "" if it is not
	Invalid  bool   // the MachineConfig is invalid, or needs an installation
	Replace  bool   // it needs an installation, and another machine is asked for
}

// Status returns the status of the MachineConfigNode of a node with a current MachineConfig. before are the conditions that
// the object has.
func (p Progressed) Status(current string, before []metav1.Condition, now time.Time) MachineConfigNodeStatus {
	return MachineConfigNodeStatus{Conditions: p.Conditions(before, now), ConfigVersion: ConfigVersion{Current: current, Desired: p.Config}}
}

// Conditions returns the conditions of a MachineConfigNode. A condition is False before its stages,
// Unknown in them, and True after them. After the update all of them are False but Updated. A condition that was the
// same before keeps its time.
func (p Progressed) Conditions(before []metav1.Condition, now time.Time) []metav1.Condition {
	updated := p.Stage == StageNone && p.Degraded == "" && !p.Invalid
	out := []metav1.Condition{
		newCondition("Updated", StatusOf(updated), "Updated", "the node has "+p.Config),
		newCondition("NodeDegraded", StatusOf(p.Degraded != ""), "NodeDegraded", p.Degraded),
	}
	if !updated {
		out[0].Message = "the node does not have " + p.Config
	}
	for _, c := range conditionsOfUpdate {
		value := metav1.ConditionStatus(False)
		switch {
		case p.Stage == StageNone || c.emptied && !p.Emptied:
		case p.Stage > c.last:
			value = True
		case p.Stage >= c.first:
			value = Unknown
		}
		message := c.message + " " + p.Config
		if value == Unknown && p.Waiting != "" {
			message += ": " + p.Waiting
		}
		out = append(out, newCondition(c.name, value, c.name, message))
	}
	if p.Invalid {
		reason := EventFailedToReconcile
		if p.Replace {
			reason = EventNeedsReplacement
		}
		out[2] = newCondition("UpdatePrepared", Unknown, reason, p.Degraded)
	}
	for i := range out {
		out[i].LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
		for _, old := range before {
			if old.Type == out[i].Type && old.Status == out[i].Status {
				out[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	return out
}

// conditionsOfUpdate are the conditions of an update in their order, as the machine-config operator defines them
// (pkg/upgrademonitor), with the stages of pivot's own order.
var conditionsOfUpdate = []struct {
	name        string
	first, last Stage
	emptied     bool // only of an update with a drain
	message     string
}{
	{"UpdatePrepared", StagePrepare, StagePrepare, false, "checks and downloads"},
	{"UpdateExecuted", StageDrain, StageApply, false, "applies"},
	{"Cordoned", StageDrain, StageDrain, true, "cordons the node for"},
	{"Drained", StageDrain, StageDrain, true, "drains the node for"},
	{"AppliedFilesAndOS", StageApply, StageApply, false, "commits"},
	{"UpdatePostActionComplete", StageReboot, StageReboot, false, "starts and proves"},
	{"RebootedNode", StageReboot, StageReboot, true, "reboots into"},
	{"UpdateComplete", StageResume, StageResume, false, "completes"},
	{"Uncordoned", StageResume, StageResume, true, "uncordons the node after"},
	{"Resumed", StageResume, StageResume, false, "resumes with"},
}

func newCondition(name string, value metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: name, Status: value, Reason: reason, Message: message}
}

// StatusOf returns the status of a condition that is, or is not.
func StatusOf(is bool) metav1.ConditionStatus {
	if is {
		return True
	}
	return False
}
