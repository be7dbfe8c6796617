package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/window"
)

// gate returns why no further node of a pool may begin; "" if nodes may. The first reason that holds is named: those that
// last before those that end by themselves.
func (v *view) gate(views map[string]*view, workloads string) string {
	if stop := v.shut(views, workloads); stop != "" {
		return stop
	}
	v.open = true
	if workloads != "" {
		return v.stops("WorkloadUnavailable", "waits: "+workloads)
	}
	return v.stops("Unhealthy", v.unhealthy())
}

// shut returns which setting or failure keeps all nodes from beginning; "" if none does.
func (v *view) shut(views map[string]*view, workloads string) string {
	spec := v.pool.Spec
	switch {
	case v.pool.Deleted:
		return v.stops("Deleted", v.deleted(workloads))
	case v.target == "":
		return v.stops("NotRendered", "waits until a MachineConfig is rendered for the pool")
	case v.isEmpty():
		return v.stops("NoNodes", v.noNodes())
	case v.pool.Paused:
		v.held = true
		return v.stops("Paused", "paused")
	case v.pool.CheckProblem != "":
		return v.stops("CheckUnusable", "waits until the expression spec.checks.node can be used: "+v.pool.CheckProblem)
	case v.isStopped():
		return v.stops("Stopped", v.stopped())
	}
	if stop := v.after(spec.After, views); stop != "" {
		return v.stops("WaitsForPool", stop)
	}
	return v.stops("WaitsForWindow", v.window(spec.Window))
}

// isEmpty reports whether a pool has no nodes at all. Zero of zero is no success: who waits for it has mistyped a label.
func (v *view) isEmpty() bool { return len(v.members)+len(v.outside)+len(v.taken) == 0 }

// noNodes says what an empty pool waits for.
func (v *view) noNodes() string {
	if len(v.alone) > 0 {
		return "has no other nodes: " + v.leftAlone()
	}
	return "has no nodes: label nodes as spec.nodeSelector of the pool says"
}

// stops records the reason for which no further node begins, unless there is none.
func (v *view) stops(reason, text string) string {
	if text != "" {
		v.because = reason
	}
	return text
}

// isStopped reports whether as many nodes fail as may.
func (v *view) isStopped() bool { return len(v.fails) >= v.stopAfter() }

// stopped says what has stopped the rollout.
func (v *view) stopped() string {
	f := v.fails
	names := make([]string, len(f))
	for i := range f {
		names[i] = f[i].Name
	}
	return fmt.Sprintf("stopped: %s failed with %s; %s: %s", has(names), v.target, f[0].Name, f[0].Reason)
}

// deleted waits until no slot is left in the PoolRollout, which is deleted then.
func (v *view) deleted(workloads string) string {
	begun := v.left()
	for i := range v.members {
		if m := &v.members[i]; m.taken && (!v.isIdle(m) || m.Refused != "") { // else it gives its slot back now
			begun = append(begun, m.describe(v.target))
		}
	}
	switch {
	case len(begun) == 0:
		return "waits until the PoolRollout is deleted"
	case workloads != "":
		workloads = "; " + workloads
	}
	return "waits until the nodes that have begun are done, to delete the PoolRollout: " + some(begun) + workloads
}

// after waits for the pools that must have arrived first.
func (v *view) after(pools []string, views map[string]*view) string {
	for _, name := range pools {
		switch other := views[name]; {
		case other == nil || other.pool.Orphan:
			return fmt.Sprintf("waits for the pool %s, which does not exist; correct spec.after", name)
		case reaches(name, v.pool.Name, views, map[string]bool{}):
			return fmt.Sprintf("waits for the pool %s, which waits for this one; correct spec.after", name)
		case !other.hasArrived():
			v.held = true
			return fmt.Sprintf("waits for the pool %s, which does not have its own configuration yet", name)
		}
	}
	return ""
}

// reaches reports whether a pool waits for another one, perhaps over others.
func reaches(from, to string, views map[string]*view, seen map[string]bool) bool {
	if from == to {
		return true
	}
	if seen[from] || views[from] == nil {
		return false
	}
	seen[from] = true
	return slices.ContainsFunc(views[from].pool.Spec.After, func(next string) bool { return reaches(next, to, views, seen) })
}

// hasArrived reports whether each node of a pool has the pool's own configuration, and serves.
func (v *view) hasArrived() bool {
	for i := range v.members {
		if m := &v.members[i]; !v.has(m) || m.taken {
			return false
		}
	}
	return v.target != "" && !v.isReturning() && len(v.outside) == 0
}

// ended returns the configuration of the pool if its rollout has ended: it has failed, or each node that can begin has it.
// Then the nodes may be given another image. One that cannot start this image waits for just that.
func (v *view) ended() string {
	config := v.pool.Configuration.Name
	switch {
	case config == "" || v.status.GivenUp == config:
		return config
	case v.target != config || len(v.taken) > 0:
		return ""
	}
	for i := range v.members {
		if m := &v.members[i]; v.wants(m) && !m.cordonedByPeople() {
			return ""
		}
	}
	return config
}

// withProblem adds to what a rollout waits for why there is no newer image.
func (v *view) withProblem(waiting string) string {
	switch problem := v.status.Problem; {
	case problem == "":
		return waiting
	case waiting == "":
		v.because = "SpecNotMet"
		return problem
	default:
		return waiting + "; " + problem
	}
}

// unhealthy waits for nodes that have been changed, but have not stayed healthy: one that lacks a kernel
// argument, say, or does not pass the pool's check.
func (v *view) unhealthy() string {
	var bad []string
	for i := range v.members {
		m := &v.members[i]
		if m.desired() == v.target && m.current() == v.target && m.unproven() != "" && !m.hasLeft() { // which takes a slot
			bad = append(bad, m.Name+" "+m.unproven())
		}
	}
	if len(bad) == 0 {
		return ""
	}
	return "waits until nodes with " + v.target + " are healthy: " + some(bad)
}

// window waits for the maintenance window.
func (v *view) window(text string) string {
	if text == "" {
		return ""
	}
	w, err := window.Parse(text, time.UTC)
	if err != nil {
		return "waits until spec.window can be read: " + err.Error()
	}
	opens, closes := w.Next(v.now)
	if !opens.After(v.now) {
		v.remindAt(closes)
		return ""
	}
	v.remindAt(opens)
	v.held = true
	return fmt.Sprintf("waits for the window %q, which opens at %s", strings.TrimSpace(text), clock(opens))
}
