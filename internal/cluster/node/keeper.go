package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
	backoff "machine-pivot/internal/retry"
)

// Keeper keeps the resources of CPU partitioning in the capacity of a node, as OpenShift's kubelet does:
// TYPE.workload.openshift.io/cores, a thousand for each CPU. Any other kubelet does not know them, and sets them to 0 when it
// starts as it does with each resource without a device plugin that it has seen.
//
// It is beside the Agent: neither waits for the other. What it remembers only saves work.
type Keeper struct {
	Cluster Advertiser
	Runner  WorkloadsRunner
	Now     func() time.Time
	Log     *logrus.Logger
	Metrics *Metrics
	Events  *Events

	types   []string  // of the host, as last known
	known   bool      // they are
	config  string    // Resources.Config when they were asked for
	ask     time.Time // when they are asked for again
	patched time.Time // when the node was last changed, or that was tried
	pause   time.Duration
}

// Advertiser is the node's cluster, as a Keeper uses it.
type Advertiser interface {
	// Advertise changes the node, and returns its new state.
	Advertise(ctx context.Context, p ResourcesPatch) (Resources, error)
}

// WorkloadsRunner asks pivot on the host: see package hostpivot.
type WorkloadsRunner interface {
	Workloads(ctx context.Context) (hostpivot.Workloads, error)
}

// The times between what a Keeper does. Something else may undo each change of the node as soon as it is
// made: then the pauses between changes get longer.
const (
	askEvery   = 10 * time.Minute
	askAgain   = time.Minute // after a failure
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
	settled    = 10 * time.Minute // without a change, the pauses are short again
)

// Run keeps the resources of the node until ctx ends. nodes has the newest state of the node.
func (k *Keeper) Run(ctx context.Context, nodes <-chan Resources) {
	var n Resources
	select {
	case n = <-nodes:
	case <-ctx.Done():
		return
	}
	for {
		var wait time.Duration
		n, wait = k.Step(ctx, n)
		timer := time.NewTimer(backoff.Policy{First: wait, Cap: wait}.Wait(1, nil)) // a random one, since others wait, too
		select {
		case n = <-nodes:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// Step does what is due for a node, and returns its newest state and how long nothing is due unless it changes.
func (k *Keeper) Step(ctx context.Context, n Resources) (Resources, time.Duration) {
	now := k.Now()
	if wait := k.ask.Sub(now); wait <= 0 || wait > askEvery || n.Config != k.config { // the clock may be set back
		k.askHost(ctx, n)
		now = k.Now()
	}
	rest := max(k.ask.Sub(now), time.Second)
	if !k.known {
		return n, rest
	}
	p, due := DecideResources(n, k.types)
	if !due {
		return n, rest
	}
	if wait := k.patched.Add(k.pause).Sub(now); wait > 0 && wait <= lastPause { // a clock that was set back does not count
		return n, min(wait, rest)
	}
	if now.Sub(k.patched) >= settled {
		k.pause = 0
	}
	k.patched, k.pause = now, min(max(2*k.pause, firstPause), lastPause)
	after, err := k.Cluster.Advertise(ctx, p)
	if err != nil {
		k.Log.WithError(err).Warn("cannot advertise the workloads of the host; tries again")
		return n, k.pause
	}
	if len(p.Cores) > 0 {
		k.tell(ctx, after, Event{Reason: api.EventWorkloadsAdvertised, Message: describe(p)})
	}
	return after, rest
}

// askHost asks for the workload types of the host. If they cannot be told, those that were last known stay: a
// mistake in a file takes no resource from pods that run.
func (k *Keeper) askHost(ctx context.Context, n Resources) {
	found, err := k.Runner.Workloads(ctx)
	k.config = n.Config
	k.ask = k.Now().Add(askEvery)
	switch {
	case err != nil:
		k.ask = k.Now().Add(askAgain)
		k.Log.WithError(err).Warn("cannot ask for the workloads of the host; tries again")
	case found.Problem != "":
		k.Metrics.workloads(false)
		k.ask = k.Now().Add(askAgain)
		k.tell(ctx, n, Event{Reason: api.EventWorkloadsUnknown, Message: api.BoundedReason(found.Problem), Warning: true})
	default:
		k.Metrics.workloads(true)
		k.types, k.known = found.Types, true
	}
}

// tell records an event.
func (k *Keeper) tell(ctx context.Context, n Resources, e Event) {
	k.Events.Record(ctx, k.Log.WithContext(ctx), Node{Name: n.Name, UID: n.UID}, e)
}

// describe returns a change for people.
func describe(p ResourcesPatch) string {
	var parts []string
	for _, workload := range slices.Sorted(maps.Keys(p.Cores)) {
		if cores := p.Cores[workload]; cores == nil {
			parts = append(parts, "no longer "+workload+WorkloadCores)
		} else {
			parts = append(parts, fmt.Sprintf("%s%s: %d", workload, WorkloadCores, *cores))
		}
	}
	return "the node advertises " + strings.Join(parts, ", ")
}
