package simnodes

import (
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/cluster/api"
)

// Limit is how many nodes of a pool may be disturbed at a time: a number, or a percentage of the most nodes that
// the pool has had. Slots that were taken stay taken when a pool becomes smaller.
type Limit struct{ Number, Percent, nodes int }

// Sees says that somebody counts a number of nodes in the pool. What it has seen of each node may be from another moment.
func (l *Limit) Sees(size int) { l.nodes = max(l.nodes, size) }

// Exceeded returns what is wrong if nodes of a pool with a size are disturbed; "" if nothing is.
func (l *Limit) Exceeded(pool string, size int, disturbed []string) string {
	l.Sees(size)
	most := max(l.Number, l.Percent*l.nodes/100, 1)
	if len(disturbed) <= most {
		return ""
	}
	return fmt.Sprintf("limit: %s are disturbed of %s at a time, limit %d", disturbed, pool, most)
}

// End is the state of a pool in which nothing changes any more.
type End struct {
	Pool    string
	Behind  []string // nodes that do not run its configuration
	Rollout api.PoolRolloutStatus
	Others  []string // who else may be to blame, as the sentence names them
}

// HasArrived reports whether each node has its configuration, and nothing is waited for but a node.
func (e End) HasArrived() bool {
	return len(e.Behind) == 0 && (e.Rollout.Waiting == "" || strings.HasPrefix(e.Rollout.Waiting, "has no nodes")) && len(e.Rollout.Taken) == 0
}

// Wrong returns what is wrong; "" if nothing is. A healthy pool must have arrived. Another one may instead say who
// is to blame: one of the nodes, nodes that are gone, or one of the others.
func (e End) Wrong(healthy bool, nodes []string) string {
	says := e.Rollout.Waiting
	names := func(what []string) bool {
		return slices.ContainsFunc(what, func(name string) bool { return strings.Contains(says, name) })
	}
	switch {
	case e.HasArrived():
	case healthy:
		return fmt.Sprintf("%s is healthy and has not arrived: %s; says %q, %+v", e.Pool, e.Behind, says, e.Rollout)
	case len(e.Behind) > 0 && !names(nodes) && !names(e.Others) && !strings.Contains(says, "gone"):
		return fmt.Sprintf("%s has not arrived (%s) and names nobody: %q", e.Pool, e.Behind, says)
	}
	return ""
}
