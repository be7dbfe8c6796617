package rollout

import (
	"cmp"
	"slices"
	"time"

	"machine-pivot/internal/cluster/api"
)

// view is a pool in the course of a decision.
type view struct {
	pool     *Pool
	now      time.Time
	self     string
	members  []member        // in the order in which they begin
	names    map[string]bool // of the members
	alone    []string        // nodes that are to be left alone
	outside  []string        // nodes that were never given a configuration, and are not to be taken in
	problems []string        // of settings, labels and selectors

	most    int // that may be unavailable
	loads   int // that may download before their turn
	target  string
	taken   map[string]bool // the slots that remain or are taken
	status  api.PoolRolloutStatus
	next    time.Time
	because string // the reason for which no further node begins, for conditions; "": others may, as far as there is room
	open    bool   // nothing lasting keeps nodes from beginning
	held    bool   // by the pool's own settings
	marked  bool   // nodes that have the taint Pending keep it although the pool is shut

	fails    []api.FailedNode // on which the target fails now
	released []Node
	gone     []string
	given    []Change
	asked    []Node
	kept     []string            // downloads of nodes that nobody may change, with the reason
	jobs     map[string]JobState // those of the hooks, by namespace and name
	hooks    []Hook              // that are to be created
}

// member is a node of a pool.
type member struct {
	*Node
	why       string    // it is unavailable; "" if it is not
	taken     bool      // it has a slot of the pool
	begun     time.Time // when it was given the target by a slot; zero: it was not, or is healthy with it
	waitsFor  string    // the Job that it waits for
	late      bool      // it is in change for longer than it may
	elsewhere string    // the other pool, of which it was a node, that it has a slot of
}

// newView returns the view of a pool before anything is decided.
func newView(f Fleet, i int, a assignment, holders map[string]string) *view {
	p := &f.Pools[i]
	v := &view{pool: p, now: f.Now, self: f.Self, jobs: f.Jobs, taken: map[string]bool{}, names: map[string]bool{}, problems: a.problems[p.Name], status: p.Rollout}
	for _, name := range p.Rollout.Taken {
		v.taken[name] = true
	}
	for _, n := range a.nodes[p.Name] {
		switch how := api.MembershipOf(n.Labels, n.Annotations); {
		case how == api.LeftAlone:
			v.alone = append(v.alone, n.Name)
			continue
		case how == api.NotTaken && !p.Spec.Adopt: // its agent may let it join
			v.outside = append(v.outside, n.Name)
			continue
		}
		v.names[n.Name] = true
		m := member{Node: n, why: n.unavailable(), taken: v.taken[n.Name]}
		if holder := holders[n.Name]; holder != p.Name {
			m.elsewhere = holder
		}
		v.members = append(v.members, m)
	}
	slices.SortFunc(v.members, v.order)
	var err error
	if v.most, err = api.MostUnavailable(p.Name, p.MaxUnavailable, len(v.members)); err != nil {
		v.problems = append(v.problems, err.Error())
	}
	if v.loads, err = api.MostDownloads(p.Spec.ParallelDownloads, len(v.members)); err != nil {
		v.problems = append(v.problems, err.Error())
	}
	return v
}

// order compares nodes by when they begin. The controller's own node is the last one.
func (v *view) order(a, b member) int {
	if (a.Name == v.self) != (b.Name == v.self) {
		if a.Name == v.self {
			return 1
		}
		return -1
	}
	return cmp.Or(v.claims(a, b), a.turn().Compare(b.turn()))
}

func (n *Node) turn() api.Turn {
	return api.Turn{Name: n.Name, Labels: n.Labels, Created: n.Created}
}

// holders returns the pool that has given each slot.
func holders(f Fleet) map[string]string {
	out := map[string]string{}
	for _, p := range f.Pools {
		for _, name := range p.Rollout.Taken {
			out[name] = p.Name
		}
	}
	return out
}

// isDownCandidate reports whether a node without a slot is unavailable, for whatever reason, and may get the target.
// What it has may be the reason, and then nothing but another configuration ends that.
func (v *view) isDownCandidate(m *member) bool {
	return !m.taken && m.elsewhere == "" && v.wants(m) && m.why != "" && !m.cordonedByPeople()
}

// isCandidate reports whether a node that serves may begin.
func (v *view) isCandidate(m *member) bool {
	return !m.taken && m.elsewhere == "" && v.wants(m) && m.why == "" && v.hookFailure(m.Name) == ""
}

// wants reports whether a node is to be given the target. One that has left it without being given another one is, too.
// One that cannot start it is not. On the way back, only nodes are that have what has failed, or were given it: another node has not asked for a change.
func (v *view) wants(m *member) bool {
	if m.refuses(v.target) {
		return false
	}
	if m.desired() == v.target {
		return m.isStray()
	}
	return !v.isReturning() || m.desired() == v.status.GivenUp || m.current() == v.status.GivenUp
}

// has reports whether a node has the target, and serves with it. One that somebody has cordoned has it, too.
func (v *view) has(m *member) bool {
	return m.desired() == v.target && m.current() == v.target &&
		(m.why == "" || m.Problem == "" && m.why == "is cordoned" && m.unproven() == "")
}

// remindAt makes the controller look again at a time.
func (v *view) remindAt(t time.Time) {
	if t.After(v.now) && (v.next.IsZero() || t.Before(v.next)) {
		v.next = t
	}
}
