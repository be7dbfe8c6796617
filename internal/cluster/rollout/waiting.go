package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/cluster/api"
)

// waiting returns what the rollout waits for, in one sentence; "" if each node has what it should. docs/
// cluster-rollout.md has the table of these sentences.
func (v *view) waiting(stop string) string {
	switch {
	case len(v.members) == 0 && len(v.problems) > 0:
		return v.problems[0]
	case v.isEmpty(), v.target == "" && len(v.taken) == 0: // whoever asks while nothing is under way is told why
		return stop
	case v.hasArrived() && len(v.taken) == 0:
		return ""
	}
	back := ""
	if v.isReturning() {
		back = v.givenUp()
	}
	return back + v.reason(stop)
}

// givenUp says that the pool's configuration is given up, and names the cause.
func (v *view) givenUp() string {
	names := make([]string, len(v.status.Failed))
	for i, f := range v.status.Failed {
		names[i] = f.Name
	}
	where := someOf(names, int(v.status.FailedCount))
	if where == "" {
		where = "nodes that are gone"
	}
	return fmt.Sprintf("%s is given up, since it failed on %s; the nodes get %s: ", v.status.GivenUp, where, v.target)
}

// reason is the first reason that holds.
func (v *view) reason(stop string) string {
	var begun, late, down, cordoned []string
	left := 0
	for i := range v.members {
		m := &v.members[i]
		switch {
		case m.taken && m.cordonedByPeople():
			cordoned = append(cordoned, m.Name)
		case m.late:
			late = append(late, m.describe(v.target)+v.howLate())
		case m.taken:
			begun = append(begun, m.describe(v.target))
		case m.elsewhere != "":
			down = append(down, m.begunElsewhere())
		case v.has(m) && m.why == "", m.refuses(v.target), v.isReturning() && !v.wants(m) && m.desired() != v.target:
		case v.has(m): // it has the target, and takes room from others
			cordoned = append(cordoned, m.Name)
		case m.desired() == v.target:
			down = append(down, m.Name+" "+m.why)
		case m.cordonedByPeople():
			cordoned = append(cordoned, m.Name)
		case m.why != "" && !m.hasFailed():
			down = append(down, m.Name+" "+m.why)
		default:
			left++
		}
	}
	if len(late) > 0 {
		begun = late
	}
	switch {
	case stop != "" && left+len(begun)+len(down)+len(cordoned) > 0:
		return stop
	case len(begun) > 0:
		return fmt.Sprintf("waits for %s (at most %d unavailable at a time)", some(begun), v.most)
	case len(down) > 0:
		return fmt.Sprintf("waits until these nodes serve: %s (at most %d unavailable at a time)", some(down), v.most)
	case len(cordoned) > 0:
		return "waits until somebody uncordons " + some(cordoned)
	case len(v.taken) > 0:
		return "waits for " + some(v.left()) + ", in change since before they left the pool"
	case len(v.outside) > 0:
		return isAre(len(v.outside)) + " not taken in: set spec.adopt of the PoolRollout: " + some(v.outside)
	case v.isReturning():
		return "no node has " + v.status.GivenUp + " any more; correct the MachineConfigs of the pool"
	}
	return ""
}

// begunElsewhere says which pool has begun to change a node, and how far that is.
func (m *member) begunElsewhere() string {
	text := fmt.Sprintf("%s has a slot of the pool %s", m.Name, m.elsewhere)
	if m.why != "" {
		text += ": it " + m.why
	}
	return text
}

// describe says how far a node with a slot is.
func (m *member) describe(target string) string {
	switch {
	case m.Refused != "", m.Denied != "":
		return m.Name + ", which cannot be changed: " + cmp.Or(m.Refused, m.Denied)
	case m.waitsFor != "":
		return m.Name + ", which " + m.waitsFor
	case m.why == "" && m.desired() != target:
		return m.Name + ", which gets " + target + " now"
	case m.why == "":
		return m.Name + ", which has " + target
	}
	return m.Name + ", which " + m.why
}

// mostNamed is how many nodes a sentence names.
const mostNamed = 3

// some joins the first of several names, and says how many more there are. Their order is by name, so that two
// controllers, each of which has its own node last, write the same.
func some(names []string) string { return someOf(names, len(names)) }

// someOf is some if not all of a number of names are known.
func someOf(names []string, number int) string {
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), mostNamed)], "; ")
	if more := number - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func has(names []string) string {
	if len(names) == 1 {
		return names[0] + " has"
	}
	return some(names) + " have"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

func bounded(text string) string { return api.BoundedReason(text) }
