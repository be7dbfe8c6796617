package rollout

import (
	"fmt"
	"math"
	"time"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// canaries returns how many more nodes may begin with respect to the canaries, and why no more may. On the way
// back there are none: the last good configuration has been on all nodes.
func (v *view) canaries() (room int, stop string) {
	want := min(int(v.pool.Spec.Canary), len(v.members))
	if want <= 0 || v.isReturning() {
		return math.MaxInt, ""
	}
	begun, healthy := 0, 0
	var bad []string
	for i := range v.members {
		m := &v.members[i]
		switch {
		case !m.taken && (m.desired() != v.target || m.isStray()):
			continue
		case !m.taken && v.has(m):
			healthy++
		default:
			bad = append(bad, m.describe(v.target))
		}
		begun++
	}
	if healthy < want || healthy < begun && !v.soaked() {
		v.status.CanariesSince = nil
		if begun < want {
			return want - begun, ""
		}
		return 0, fmt.Sprintf("waits for the first %s with %s: %s", plural(begun, "node"), v.target, some(bad))
	}
	if v.status.CanariesSince == nil || v.isFuture(*v.status.CanariesSince) {
		v.status.CanariesSince = &v1.Time{Time: v.now.Truncate(time.Second)}
	}
	if v.soaked() {
		return math.MaxInt, ""
	}
	until := v.status.CanariesSince.Add(v.pool.Spec.Soak.Duration)
	v.remindAt(until)
	v.held = true
	return 0, fmt.Sprintf("waits until %s, so that the first %s with %s can show that they stay healthy", clock(until), plural(begun, "node"), v.target)
}

// soaked reports whether the canaries have been healthy for long enough.
func (v *view) soaked() bool {
	s := v.status.CanariesSince
	return s != nil && !v.now.Before(s.Add(v.pool.Spec.Soak.Duration))
}
