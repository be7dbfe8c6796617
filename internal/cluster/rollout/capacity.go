package rollout

// room returns how many nodes of a pool may begin: of those that serve, and of those that are down without the
// target. Such a node is unavailable already, so that it takes no room from itself; but no more than maxUnavailable
// have slots.
func (v *view) room() (serving, failed int) {
	held, down, broken := len(v.taken), 0, 0
	for i := range v.members {
		switch m := &v.members[i]; {
		case m.taken, v.passesOn(m):
		case m.elsewhere != "":
			down++
		case v.isDownCandidate(m):
			broken++
		case m.why != "":
			down++
		}
	}
	return max(v.most-held-down-broken, 0), max(v.most-held-down, 0)
}
