package rollout

import (
	"slices"

	"machine-pivot/internal/cluster/api"
)

// Decide returns what is due for a fleet.
func Decide(f Fleet) Decision {
	a, held := assign(f), holders(f)
	views := map[string]*view{}
	for i := range f.Pools {
		v := newView(f, i, a, held)
		v.chooseTarget()
		v.seeLate()
		views[v.pool.Name] = v
	}
	var d Decision
	nodes := byName(f)
	for i := range f.Pools {
		v := views[f.Pools[i].Name]
		d.Pools = append(d.Pools, v.decide(f, nodes, views))
		if !v.next.IsZero() && (d.Next.IsZero() || v.next.Before(d.Next)) {
			d.Next = v.next
		}
	}
	d.mark(f, views)
	return d
}

// byName returns the nodes that have a slot, or download something.
func byName(f Fleet) map[string]*Node {
	out := map[string]*Node{}
	for name := range holders(f) {
		out[name] = nil
	}
	for _, p := range f.Pools {
		for _, d := range p.Rollout.Downloads {
			out[d.Name] = nil
		}
	}
	for i := range f.Nodes {
		if _, ok := out[f.Nodes[i].Name]; ok {
			out[f.Nodes[i].Name] = &f.Nodes[i]
		}
	}
	return out
}

// decide decides for one pool, after the targets of all are known.
func (v *view) decide(f Fleet, nodes map[string]*Node, views map[string]*view) PoolDecision {
	workloads := v.workloadProblem(f)
	stop := v.gate(views, workloads)
	held := stop != ""
	v.status.Hooks = nil
	v.release(nodes, held, workloads != "")
	if !held {
		stop = v.stops("Canaries", v.begin())
	}
	v.retarget(held)
	v.returnPassed()
	v.retargetLeft(nodes, views)
	v.keepFailedHooks()
	v.recordBegun()
	v.download(nodes)
	if len(v.given)+len(v.asked) > 0 {
		v.status.Round++
	}
	v.status.Taken = nil
	for name := range v.taken {
		v.status.Taken = append(v.status.Taken, name)
	}
	slices.Sort(v.status.Taken)
	v.status.Down = v.down()
	v.seeAbsence()
	if v.status.Waiting = v.withPassed(v.withDownloads(v.waiting(stop))); v.status.Waiting != "" {
		v.status.Waiting += v.impatient(f.HealthChecks)
	}
	v.status.Waiting = bounded(v.withProblem(v.status.Waiting))
	v.setConditions()
	v.keepMarks()
	v.status.Ended = v.ended()
	d := PoolDecision{Released: v.released, Gone: v.gone, Rollout: v.status, Given: v.given, Asked: v.asked, Hooks: v.hooks, Status: v.poolStatus(), Held: v.held}
	d.Events = v.events(d)
	return d
}

// release gives back the slots of the nodes that have become healthy with the target, and of those that have not begun and may
// not now. The same holds for nodes that pass theirs on, and for those that have left the pool.
func (v *view) release(nodes map[string]*Node, held, workloads bool) {
	for _, name := range v.pool.Rollout.Taken {
		n := nodes[name]
		if n == nil {
			v.gone = append(v.gone, name)
			delete(v.taken, name)
		} else if !v.isMember(name) && n.isLeft() && n.Refused == "" {
			v.giveBack(n)
		}
	}
	for i := range v.members {
		m := &v.members[i]
		healthy := !workloads && (v.has(m) || !v.wants(m) && m.why == "")
		if m.taken && m.Refused == "" && (healthy && v.isApproved(m) || held && v.isIdle(m) || v.passesOn(m)) {
			v.giveBack(m.Node)
			m.taken = false
		}
	}
}

// isLeft reports whether nothing is under way on a node that belongs to the pool no more.
func (n *Node) isLeft() bool {
	return n.unavailable() == "" || n.desired() == "" && n.Problem == "" && n.Annotations[api.CordonedFor] == "" // whoever has cordoned it
}

// isIdle reports whether nothing is under way on a node that has not got the target yet.
func (v *view) isIdle(m *member) bool {
	return m.isStray() || m.desired() != v.target && !m.hasBegun()
}

func (v *view) giveBack(n *Node) {
	v.released = append(v.released, *n)
	delete(v.taken, n.Name)
}

func (v *view) isMember(name string) bool { return v.names[name] }

// begin takes slots for as many nodes as there is room, and returns why no more may begin although there is room. Nodes
// that are down come first: they serve least. Of these, the failed ones by their agents' reports are before those that
// may be dead.
func (v *view) begin() (stop string) {
	serving, down := v.room()
	canaries, stop := v.canaries()
	for _, says := range []bool{true, false} {
		for i := range v.members {
			if m := &v.members[i]; m.hasFailed() == says && v.isDownCandidate(m) && down > 0 && canaries > 0 {
				v.take(m)
				down, canaries = down-1, canaries-1
			}
		}
	}
	for i := range v.members {
		if m := &v.members[i]; v.isCandidate(m) && serving > 0 && canaries > 0 {
			v.take(m)
			serving, canaries = serving-1, canaries-1
		}
	}
	return stop
}

// down returns the nodes with a slot that were not Ready when they were given what they have, and have not been since.
func (v *view) down() (names []string) {
	for i := range v.members {
		m := &v.members[i]
		if m.taken && !m.NotReadySince.IsZero() && (v.isGiven(m.Name) || slices.Contains(v.pool.Rollout.Down, m.Name)) {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (v *view) take(m *member) {
	m.taken = true
	v.taken[m.Name] = true
}

// retarget gives the target to the nodes with a slot that have another one. One that has begun gets it unless
// the pool is paused: it is disturbed anyway. One that has not begun waits like those without a slot. That a node is
// unavailable is no reason to wait: what it has may be the cause.
func (v *view) retarget(held bool) {
	for i := range v.members {
		m := &v.members[i]
		switch {
		case !m.taken, v.target == "", !v.wants(m), m.cordonedByPeople(), v.pool.Paused, m.Refused != "":
		case (!m.hasBegun() || m.isStray()) && held, !v.isPrepared(m):
		default:
			v.give(m.Node, v)
		}
	}
}

// retargetLeft gives nodes that have left the pool with a slot the target of the pool to which they belong now. That is for
// those in the middle of a change, or unavailable since, also with another system than they were given. They keep the slot that
// they have, and take none there.
func (v *view) retargetLeft(nodes map[string]*Node, views map[string]*view) {
	for _, name := range v.left() {
		n, now := nodes[name], belongs(name, views)
		switch {
		case n == nil, now == nil, !n.hasBegun() && n.unavailable() == "", n.cordonedByPeople(), n.Refused != "":
		case now.target == "", now.target == n.desired() && !n.isStray(), now.pool.Paused:
		default:
			v.give(n, now)
		}
	}
}

// give gives the target of the pool to which a node belongs now.
func (v *view) give(n *Node, of *view) {
	v.given = append(v.given, Change{Node: *n, Config: of.target, ForceAfter: of.pool.Spec.Drain.ForceAfter.Duration})
}

// left returns the nodes with a slot that are not in the pool any more.
func (v *view) left() (names []string) {
	for _, name := range v.pool.Rollout.Taken { // whoever gets a slot now is in the pool
		if v.taken[name] && !v.isMember(name) {
			names = append(names, name)
		}
	}
	return names
}

// belongs returns the pool to which a node belongs; nil if there is none.
func belongs(name string, views map[string]*view) *view {
	for _, v := range views {
		if v.isMember(name) {
			return v
		}
	}
	return nil
}

// hasBegun reports whether a node was given a configuration that it does not have, or has not settled with.
func (n *Node) hasBegun() bool {
	return n.desired() != "" && (n.desired() != n.current() || n.state() != api.StateDone) || n.Annotations[api.CordonedFor] != ""
}

// workloadProblem returns which workload of the pool's checks is not available; "" if all are.
func (v *view) workloadProblem(f Fleet) string {
	for _, w := range v.pool.Spec.Checks.Workloads {
		problem, found := f.Workloads[w]
		if !found {
			problem = "it does not exist"
		}
		if problem != "" {
			return workloadName(w) + " is not available: " + problem
		}
	}
	return ""
}

func workloadName(w api.WorkloadReference) string {
	return w.Kind + " " + w.Namespace + "/" + w.Name
}
