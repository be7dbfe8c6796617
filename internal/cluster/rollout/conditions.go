package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
)

// poolStatus returns the status of the MachineConfigPool, which counts as the machine-config operator does.
func (v *view) poolStatus() api.MachineConfigPoolStatus {
	s := v.pool.Status
	s.ObservedGeneration = v.pool.Generation
	s.MachineCount = int32(len(v.members) + len(v.outside))
	s.UpdatedMachineCount, s.ReadyMachineCount, s.UnavailableMachineCount, s.DegradedMachineCount = 0, 0, 0, 0
	want := v.pool.Configuration.Name
	for i := range v.members {
		m := &v.members[i]
		if m.hasFailed() {
			s.DegradedMachineCount++
		}
		if m.why != "" {
			s.UnavailableMachineCount++
		}
		if m.hasProven(want) {
			s.UpdatedMachineCount++
			if m.why == "" {
				s.ReadyMachineCount++
			}
		}
	}
	all := want != "" && s.UpdatedMachineCount == s.MachineCount
	if all { // also of none: the first node gets it
		s.Configuration = v.pool.Configuration
	}
	s.Conditions = v.conditions(all && !v.isEmpty())
	return s
}

// setConditions sets the conditions of the PoolRollout, for programs that wait for one of them.
func (v *view) setConditions() {
	reason, failing := cmp.Or(v.because, "NodesChange"), v.failing()
	arrived := v.status.Waiting == "" && v.target != ""
	switch {
	case arrived:
		reason = "AllNodes"
	case v.because == "" && len(v.taken) == 0 && len(v.outside) > 0:
		reason = "NotTakenIn"
	}
	v.status.Conditions = slices.Clone(v.status.Conditions)
	set := func(kind string, is bool, reason, message string) {
		meta.SetStatusCondition(&v.status.Conditions, v1.Condition{
			Type: kind, Status: api.StatusOf(is), Reason: reason, Message: message, ObservedGeneration: v.pool.RolloutGeneration, LastTransitionTime: v.second(),
		})
	}
	set(api.RolloutComplete, arrived, reason, v.status.Waiting)
	set(api.RolloutProgressing, !arrived && v.open, reason, v.status.Waiting)
	healthy := map[bool]string{true: "NoneFailed", false: "NodesOrSettings"}[len(failing) == 0]
	set(api.RolloutDegraded, len(failing) > 0, healthy, bounded(strings.Join(failing, "; ")))
}

// conditions returns the conditions of the pool. That about rendering is the renderer's, and stays.
func (v *view) conditions(updated bool) []v1.Condition {
	out := slices.Clone(v.pool.Status.Conditions)
	set := func(kind string, is bool, reason, message string) {
		meta.SetStatusCondition(&out, v1.Condition{Type: kind, Status: api.StatusOf(is), Reason: reason, Message: bounded(message), LastTransitionTime: v.second()})
	}
	message := v.status.Waiting
	if updated && message == "" {
		message = "each node has " + v.pool.Configuration.Name
	}
	if len(v.alone) > 0 && !v.isEmpty() {
		message += "; " + v.leftAlone()
	}
	reason := meta.FindStatusCondition(v.status.Conditions, api.RolloutComplete).Reason
	set(api.PoolUpdated, updated, reason, message)
	set(api.PoolUpdating, !updated && !v.pool.Paused && !v.isEmpty(), reason, v.status.Waiting)
	failing := v.failing()
	degraded := meta.FindStatusCondition(v.status.Conditions, api.RolloutDegraded).Reason
	set(api.PoolNodeDegraded, len(failing) > 0, degraded, strings.Join(failing, "; "))
	rendered := !meta.IsStatusConditionTrue(out, api.PoolRenderDegraded)
	if !rendered {
		degraded = "NotRendered"
	}
	set(api.PoolDegraded, len(failing) > 0 || !rendered, degraded, strings.Join(failing, "; "))
	return out
}

// leftAlone names the nodes that are not maintained.
func (v *view) leftAlone() string {
	return fmt.Sprintf("%s without a desired configuration: %s", isAre(len(v.alone)), some(v.alone))
}

func isAre(n int) string {
	if n == 1 {
		return "1 node is"
	}
	return fmt.Sprintf("%d nodes are", n)
}

// failing says what is wrong with the pool's settings and nodes.
func (v *view) failing() []string {
	out := slices.Clone(v.problems)
	if v.pool.CheckProblem != "" {
		out = append(out, "cannot use spec.checks.node: "+v.pool.CheckProblem)
	}
	failed := namesOf(v.status.Failed)
	for _, f := range v.status.Failed {
		out = append(out, f.Name+" "+f.Reason)
	}
	for _, f := range v.fails {
		if !failed[f.Name] {
			out, failed[f.Name] = append(out, f.Name+" "+f.Reason), true
		}
	}
	for i := range v.members {
		m := &v.members[i]
		switch {
		case failed[m.Name]:
		case m.late:
			out = append(out, m.describe(v.target)+v.howLate())
		case m.hasFailed():
			out = append(out, m.Name+" "+m.why)
		case m.state() == api.StateDone && m.desired() == m.current() && m.unproven() != "":
			out = append(out, m.Name+" "+m.unproven())
		}
	}
	slices.Sort(out)
	if more := len(out) - maxFailing; more > 0 {
		out = append(out[:maxFailing], fmt.Sprintf("and %d more", more))
	}
	return out
}

// maxFailing is how many problems a condition names, and how many failed nodes the status of a PoolRollout.
const maxFailing = 20

// byConfig returns the nodes that get each configuration.
func (d PoolDecision) byConfig() map[string][]string {
	out := map[string][]string{}
	for _, c := range d.Given {
		out[c.Config] = append(out[c.Config], c.Name)
	}
	return out
}

// events returns events about what a decision changes. Each is about a change of the PoolRollout, which is
// written before: so it is recorded once.
func (v *view) events(d PoolDecision) (out []Event) {
	before, after := v.pool.Rollout, d.Rollout
	if len(d.Given) > 0 {
		var each []string
		for config, names := range d.byConfig() {
			each = append(each, fmt.Sprintf("gives %s to %s", cmp.Or(config, "no configuration"), some(names)))
		}
		slices.Sort(each)
		out = append(out, Event{Reason: EventSetDesiredConfig, Message: strings.Join(each, "; ")})
	}
	known := namesOf(before.Failed)
	for _, f := range after.Failed {
		if !known[f.Name] {
			out = append(out, Event{Reason: EventNodeFailed, Message: bounded(f.Name + " has failed: " + f.Reason), Warning: true})
		}
	}
	for _, b := range after.Begun {
		was := slices.ContainsFunc(before.Begun, func(old api.BegunNode) bool { return old.Name == b.Name && old.Late })
		if m := v.member(b.Name); b.Late && !was {
			out = append(out, Event{Reason: EventNodeLate, Message: bounded(m.describe(v.target) + v.howLate()), Warning: true})
		}
	}
	switch {
	case after.GivenUp == "" || after.GivenUp == before.GivenUp:
	case v.isReturning():
		out = append(out, Event{Reason: EventReturns, Message: bounded(v.status.Waiting), Warning: true})
	default:
		out = append(out, Event{Reason: EventStopped, Message: bounded(v.status.Waiting), Warning: true})
	}
	if before.Target == after.Target && before.Waiting != "" && after.Waiting == "" && v.hasArrived() && len(v.members) > 0 {
		out = append(out, Event{Reason: EventArrived, Message: "each node has " + after.Target})
	}
	return out
}
