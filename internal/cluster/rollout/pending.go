package rollout

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"machine-pivot/internal/cluster/api"
)

// Pending is the taint of the nodes that are still to change, with the effect PreferNoSchedule. Pods of a drained node rather
// start on one that has changed already, so that each moves once.
const Pending = api.Prefix + "/update-pending"

// keepFor is how long nodes keep the taint after something has shut their pool. A pool is shut and opened often while people
// work on it, and each time the controller would write on all nodes that are still to change.
const keepFor = 10 * time.Minute

// keepMarks decides whether nodes that are still to change keep the taint, although none may begin now.
func (v *view) keepMarks() {
	since := meta.FindStatusCondition(v.status.Conditions, api.RolloutProgressing).LastTransitionTime
	marked := slices.ContainsFunc(v.members, func(m member) bool { return m.isMarked() })
	if v.marked = marked && !v.open && !v.isFuture(since) && v.now.Before(since.Add(keepFor)); v.marked {
		v.remindAt(since.Add(keepFor))
	}
}

// mark decides which nodes have the taint, and which guards end. A node has the taint while it is to change and nothing
// lasting keeps it from that, and then as keepMarks decides. Whichever controller finds it on another node removes it. A node
// that this decision changes otherwise waits for the next one: it is another version then.
func (d *Decision) mark(f Fleet, views map[string]*view) {
	pending, changed, taken := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, v := range views {
		maps.Copy(taken, v.taken)
		for i := range v.members {
			m := &v.members[i]
			pending[m.Name] = (v.open || v.marked && m.isMarked()) && !m.cordonedByPeople() && (m.taken || v.wants(m)) && !v.has(m)
		}
		for _, n := range slices.Concat(v.released, v.asked) {
			changed[n.Name] = true
		}
		for _, c := range v.given {
			changed[c.Name] = true
		}
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		m := Marked{Node: *n, Pending: pending[n.Name]}
		over, soon := n.guardEnds(taken[n.Name], f.Now)
		if m.Unguard = over; soon {
			m.GuardEnd = f.Now.Add(guardFor)
		}
		if !changed[n.Name] && n.Refused == "" && (over || soon || m.Pending != n.isMarked()) {
			d.Marked = append(d.Marked, m)
		}
	}
}

func isPendingTaint(t corev1.Taint) bool { return t.Key == Pending }

func (n *Node) isMarked() bool { return slices.ContainsFunc(n.Taints, isPendingTaint) }

// taints returns the taints of a node with ours, or without it. Those of others stay.
func (n *Node) taints(pending bool) []corev1.Taint {
	out := slices.DeleteFunc(slices.Clone(n.Taints), isPendingTaint)
	if pending {
		out = append(out, corev1.Taint{Key: Pending, Effect: corev1.TaintEffectPreferNoSchedule})
	}
	return out
}
