package node

import (
	"context"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"machine-pivot/internal/cluster/hostpivot"
)

// drift is what the agent remembers of what the host's watch has found. The watch only says that it is time to
// compare: what is reported is the agent's own comparison.
type drift struct {
	judged time.Time     // Watched.At of the last finding that led to a comparison
	limit  *rate.Limiter // of these comparisons
	later  time.Duration // when the next finding leads to one; 0: none waits for that
}

// Something may change a file, and change it back, without end. That many findings are followed at once, and then
// one in each interval.
const (
	driftBurst = 10
	driftEvery = time.Minute
)

// watch has a node at rest watched for drift. A failure is only logged: the agent compares every
// Policy.ProveEvery, too.
func (a *Agent) watch(ctx context.Context, s situation) {
	if err := a.Runner.Watch(ctx, s.Managed && s.System == SystemTarget); err != nil && ctx.Err() == nil {
		a.Log.WithError(err).Warn("drift is noticed later")
	}
}

// observeDrift makes a comparison due if the host's watch has found something else than the last one.
func (a *Agent) observeDrift(s *situation) {
	m, found := &a.change, s.host.Watched
	a.drift.later = 0
	if found == nil || s.System != SystemTarget || s.Run != RunIdle || found.At.Equal(a.drift.judged) || sameFindings(found.Verify, m.verify) {
		return
	}
	if m.proven.IsZero() && m.failure == nil { // it is about to be compared
		a.drift.judged = found.At
		return
	}
	if a.drift.limit == nil {
		a.drift.limit = rate.NewLimiter(rate.Every(driftEvery), driftBurst)
	}
	turn := a.drift.limit.ReserveN(a.Now(), 1)
	if wait := turn.DelayFrom(a.Now()); wait > 0 {
		turn.CancelAt(a.Now())
		a.drift.later = wait
		return
	}
	a.drift.judged = found.At
	m.proven = time.Time{}
	if m.failure != nil {
		m.failure.due = true
		s.Failed = m.failure.waits(a.Now())
	}
}

// sameFindings reports whether two comparisons have found the same.
func sameFindings(a, b hostpivot.Verify) bool {
	return a.OK == b.OK && slices.Equal(a.Differences, b.Differences)
}
