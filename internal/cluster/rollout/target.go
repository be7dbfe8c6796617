package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/cluster/api"
)

// chooseTarget decides which configuration the nodes are given: that of the pool, or on the way back the last
// one that all of them had.
func (v *view) chooseTarget() {
	p, s := v.pool, &v.status
	if common := v.common(); common != "" && common != s.GivenUp && v.isKnown(common) {
		s.LastGood = common
	}
	if v.target = p.Configuration.Name; v.target != "" && !v.isOwn(v.target) {
		v.problems, v.target = append(v.problems, fmt.Sprintf("spec.configuration names %s, which was not rendered for the pool", v.target)), ""
	}
	if v.returns() {
		v.target = s.LastGood
	}
	failed := v.failed()
	v.fails = failed
	switch {
	case v.target != p.Configuration.Name: // who is to blame stays named
		v.blame(failed)
	case len(failed) >= v.stopAfter():
		s.GivenUp = v.target
		v.name(failed, len(failed))
		if v.returns() {
			v.target = s.LastGood
			v.fails = v.failed()
		}
	default:
		s.GivenUp = ""
		v.name(failed, len(failed))
	}
	if s.Target != v.target {
		s.Target, s.CanariesSince = v.target, nil
	}
}

// isKnown reports whether the controller itself has given a name to nodes, or gives it now. What nodes report is only
// evidence: one of them may write the name of another pool's configuration, which all others would get on the way back.
func (v *view) isKnown(config string) bool {
	return v.isOwn(config) && (config == v.pool.Configuration.Name || config == v.pool.Rollout.Target || config == v.pool.Rollout.LastGood)
}

// isOwn reports whether a name is one of those that the renderer gives to what it renders for the pool.
func (v *view) isOwn(config string) bool { return api.PoolOf(config) == v.pool.Name }

// returns reports whether the pool's configuration is given up for the last good one. It is until the pool gets
// another one: a node that has returned says nothing about whether the failing one would work now.
func (v *view) returns() bool {
	s := v.status
	return v.pool.Spec.ReturnToLastGood && s.GivenUp != "" && s.GivenUp == v.pool.Configuration.Name &&
		v.isOwn(s.LastGood) && s.LastGood != s.GivenUp
}

// isReturning reports whether the target is not the pool's own configuration.
func (v *view) isReturning() bool { return v.target != "" && v.target != v.pool.Configuration.Name }

// common returns the configuration that all nodes have and have proven; "" if there is none.
func (v *view) common() string {
	if len(v.members) == 0 {
		return ""
	}
	first := v.members[0].current()
	for i := range v.members {
		if !v.members[i].hasProven(first) {
			return ""
		}
	}
	return first
}

// failed returns the nodes on which the target has failed.
func (v *view) failed() (out []api.FailedNode) {
	for i := range v.members {
		m := &v.members[i]
		if reason := v.failure(m); reason != "" {
			out = append(out, api.FailedNode{Name: m.Name, Reason: bounded(reason)})
		} else if (m.taken || m.elsewhere != "") && m.desired() == v.target && !m.NotReadySince.IsZero() {
			v.remindAt(m.NotReadySince.Add(v.missingAfter()))
		}
	}
	slices.SortFunc(out, func(a, b api.FailedNode) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// blame names the nodes that have failed before and still exist, and those that fail now. Of those that have failed
// before and were not named, only the number is known.
func (v *view) blame(now []api.FailedNode) {
	s := &v.status
	all, failing := slices.Clone(now), namesOf(now)
	for _, b := range s.Failed {
		if v.isMember(b.Name) && !failing[b.Name] {
			all = append(all, b)
		}
	}
	number := len(all)
	if before := int(s.FailedCount); before > len(s.Failed) {
		number = max(number, before)
	}
	v.name(all, number)
}

// name has the status name the first nodes that have failed, and their number, so that it is never too large to be
// written. Those that it names already stay, since each that is named anew is an event.
func (v *view) name(failed []api.FailedNode, number int) {
	s := &v.status
	byName := func(a, b api.FailedNode) int { return strings.Compare(a.Name, b.Name) }
	known := namesOf(s.Failed)
	rank := func(f api.FailedNode) int {
		if known[f.Name] {
			return 0
		}
		return 1
	}
	first := slices.SortedFunc(slices.Values(failed), func(a, b api.FailedNode) int {
		return cmp.Or(rank(a)-rank(b), byName(a, b))
	})
	first = first[:min(len(first), maxFailing)]
	slices.SortFunc(first, byName)
	s.Failed, s.FailedCount = first, int32(number)
}

func namesOf(failed []api.FailedNode) map[string]bool {
	out := make(map[string]bool, len(failed))
	for _, f := range failed {
		out[f.Name] = true
	}
	return out
}

func (v *view) stopAfter() int { return max(int(v.pool.Spec.StopAfter), 1) }
