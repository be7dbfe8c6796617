package rollout

import (
	"cmp"
	"slices"

	"machine-pivot/internal/cluster/api"
)

// A node that cannot start the image of the target is passed over. It is given back what it was given before, in the
// slot that it has, and no target until its claim ends. Nothing was disturbed for it, so it has not failed.

// cannot returns what a node says of an image that it cannot start.
func (n *Node) cannot() api.Cannot { return api.CannotOf(n.Annotations[api.CannotStart]) }

// refuses reports whether a node says in its present boot that its machine cannot start the image of a configuration.
func (n *Node) refuses(config string) bool {
	c := n.cannot()
	return config != "" && c.Config == config && c.BootID == n.BootID
}

// claims compares nodes by whether they say, or have said, that they cannot start the pool's image. Those begin last, so
// that one which says it anew in each boot takes no turn of another.
func (v *view) claims(a, b member) int {
	said := func(m member) int {
		if config := v.pool.Configuration.Name; config != "" && m.cannot().Config == config {
			return 1
		}
		return 0
	}
	return cmp.Compare(said(a), said(b))
}

// returnPassed gives the nodes with a slot that cannot start the target what they were given before. The name is the
// controllers' own record: a node does not choose it. A node without failed-config is in change, whatever it claims.
func (v *view) returnPassed() {
	for i := range v.members {
		m := &v.members[i]
		from := v.from(m)
		known := from != "" && from != v.target || from == "" && m.current() == "" // it was taken in
		if known && m.taken && m.Refused == "" && !v.pool.Paused && m.desired() == v.target && m.refuses(v.target) && m.Annotations[api.FailedConfig] == v.target {
			v.given = append(v.given, Change{Node: *m.Node, Config: from})
		}
	}
}

// from returns what a node was given before the target; "" if that is not known.
func (v *view) from(m *member) string {
	if !m.hasBegun() {
		return m.desired()
	}
	i := slices.IndexFunc(v.pool.Rollout.Begun, func(b api.BegunNode) bool { return b.Name == m.Name })
	if i < 0 {
		return ""
	}
	return v.pool.Rollout.Begun[i].From
}

// withPassed adds to what a rollout waits for the nodes that cannot start the target, with reason and remedy.
func (v *view) withPassed(waiting string) string {
	var passed []string
	for i := range v.members {
		if m := &v.members[i]; m.refuses(v.target) && !v.has(m) {
			passed = append(passed, m.Name+" ("+m.cannot().Verdicts+"): "+m.cannot().Reason)
		}
	}
	switch {
	case len(passed) == 0:
		return waiting
	case waiting == "":
		v.because = "CannotStart"
		return "waits for nodes that cannot start " + v.target + ": " + some(passed)
	}
	return waiting + "; cannot start " + v.target + ": " + some(passed)
}
