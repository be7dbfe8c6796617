package node

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"machine-pivot/internal/cluster/api"
)

// Events records events about a node. All parts of an agent share one, so that none is repeated.
type Events struct {
	Cluster Recorder
	Now     func() time.Time

	mu       sync.Mutex
	recorded map[Event]time.Time
}

// Recorder records events.
type Recorder interface {
	// Record records an event about the node.
	Record(ctx context.Context, of Node, e Event) error
}

// Record records an event, unless the same one was recorded recently, and logs it. A failure is only logged, since
// events are for people.
func (r *Events) Record(ctx context.Context, log *logrus.Entry, n Node, e Event) {
	e.Message = api.BoundedReason(e.Message)
	if !r.isNew(e) {
		return
	}
	log.WithField("event", e.Reason).Info(e.Message)
	if err := r.Cluster.Record(ctx, n, e); err != nil {
		log.WithError(err).Warn("cannot record an event")
	}
}

// isNew reports whether an event was not recorded recently, and notes the event.
func (r *Events) isNew(e Event) bool {
	const (
		most   = 64
		repeat = time.Hour
	)
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, again := r.recorded[e]; again && r.Now().Sub(at) < repeat {
		return false
	}
	if r.recorded == nil || len(r.recorded) >= most {
		r.recorded = map[Event]time.Time{}
	}
	r.recorded[e] = r.Now()
	return true
}
