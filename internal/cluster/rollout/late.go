package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/cluster/api"
)

// seeLate finds out which nodes are in change for longer than they may. By the controllers' clocks, from when the node was
// given the target. A node that has left its configuration is in no change until it is given that again.
func (v *view) seeLate() {
	for _, b := range v.pool.Rollout.Begun {
		m := v.member(b.Name)
		if m == nil || m.desired() != v.target || v.has(m) || !m.hasBegun() || m.isStray() {
			continue
		}
		if v.isFuture(b.Since) {
			b.Since = v.second()
		}
		until := b.Since.Add(v.workingLimit())
		v.remindAt(until)
		m.begun, m.late = b.Since.Time, b.Late || !v.now.Before(until)
	}
}

// isFuture reports whether a record of when something began is of a clock that was set back, or of another controller's
// clock. What it is about begins anew: else it would last for as long as that clock is wrong.
func (v *view) isFuture(since v1.Time) bool { return since.After(v.now) }

func (v *view) workingLimit() time.Duration {
	if limit := v.pool.Spec.WorkingLimit.Duration; limit > 0 {
		return limit
	}
	return 2 * time.Hour
}

// passesOn reports whether the slot of a node is given to the next one, because the node takes too long. etcd would lose its
// quorum if two nodes of the control plane were disturbed.
func (v *view) passesOn(m *member) bool {
	return m.late && v.pool.Spec.PassSlotOn && v.pool.Name != master
}

// recordBegun records since when nodes are in change. One that has passed its slot on stays recorded until it is healthy.
func (v *view) recordBegun() {
	v.status.Begun = nil
	for i := range v.members {
		m := &v.members[i]
		b := api.BegunNode{Name: m.Name, Since: v.second(), Late: m.late, From: v.from(m)}
		switch {
		case v.isGiven(m.Name):
			b.Late = false
		case !m.taken && !m.late:
			continue
		case !m.begun.IsZero():
			b.Since.Time = m.begun
		case m.desired() != v.target || !m.hasBegun() || v.has(m):
			continue
		}
		v.status.Begun = append(v.status.Begun, b)
	}
	slices.SortFunc(v.status.Begun, func(a, b api.BegunNode) int { return strings.Compare(a.Name, b.Name) })
}

// howLate says for how long a node is in change.
func (v *view) howLate() string { return fmt.Sprintf(", for more than %s", v.workingLimit()) }
