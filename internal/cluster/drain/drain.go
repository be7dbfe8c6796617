// Package drain empties a node by eviction, with the node's own credentials. It does not cordon the node:
// see node.Drainer. docs/cluster-drain.md has the rules as a table.
package drain

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"machine-pivot/internal/cluster/kube"
	"machine-pivot/internal/cluster/node"
)

// Drainer drains one node. It implements node.Drainer.
type Drainer struct {
	Cluster *kube.Cluster        // with the node's name
	Self    types.NamespacedName // the agent's own pod; empty if it does not run as a pod
	Policy  Policy
	// Limit is how long Drain and Rehearse may take, but for one request that is being made.
	Limit time.Duration
	Log   *logrus.Logger
}

// The times between two looks at the pods of a drain.
const (
	firstLook = 500 * time.Millisecond
	lastLook  = 10 * time.Second
)

// Rehearse implements node.Drainer: it asks the API server for each eviction as a dry run, and returns one
// error with all obstacles.
func (d *Drainer) Rehearse(ctx context.Context) error {
	until := d.Cluster.Now().Add(d.Limit)
	f, err := d.look(ctx)
	if err != nil {
		return err
	}
	report := f.stopped
	for _, p := range f.ending {
		if late := d.late(p); late >= stuck {
			report.add(d.whyNotEnded(p), p)
		}
	}
	refused, err := d.evictAll(ctx, f.going, until, true)
	if err != nil {
		return err
	}
	protected := newBudgets(d)
	if err := refused.explain(ctx, protected, report, false); err != nil {
		return err
	}
	if err := protected.countUnmanaged(ctx, f.going, report); err != nil {
		return err
	}
	return report.err()
}

// Drain implements node.Drainer. A pod that comes during the drain and tolerates the cordon does not
// matter: it, or the next one in its place, would come back for ever.
func (d *Drainer) Drain(ctx context.Context, of node.Node) error {
	until := d.Cluster.Now().Add(d.Limit)
	var first map[types.UID]bool
	for wait := firstLook; ; wait = min(2*wait, lastLook) {
		f, err := d.look(ctx)
		if err != nil {
			return err
		}
		if first == nil {
			first = f.all()
		}
		f.leaveNewcomers(first)
		if err := f.stopped.err(); err != nil {
			return err
		}
		if len(f.going)+len(f.ending) == 0 {
			return nil
		}
		refused, err := d.evictFrom(ctx, of, f.going, until)
		if err != nil {
			return err
		}
		if d.Cluster.Now().Add(wait).After(until) {
			return d.unfinished(ctx, f, refused)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// evictFrom evicts pods of a node that is still the one that the agent has cordoned.
func (d *Drainer) evictFrom(ctx context.Context, of node.Node, pods []*corev1.Pod, until time.Time) (refusals, error) {
	if len(pods) == 0 {
		return nil, nil
	}
	now, err := d.Cluster.Node(ctx)
	if err != nil {
		return nil, err
	}
	if now.UID != of.UID || !now.Unschedulable {
		return nil, fmt.Errorf("cannot drain the node %s: %w: it is another one, or not cordoned any more", of.Name, node.ErrConflict)
	}
	return d.evictAll(ctx, pods, until, false)
}

// unfinished returns what a drain waits for whose time is up.
func (d *Drainer) unfinished(ctx context.Context, f found, refused refusals) error {
	report := f.stopped
	for _, p := range f.ending {
		report.add(d.whyNotEnded(p), p)
	}
	for _, p := range f.going {
		if _, not := refused[p]; !not {
			report.add(ends, p)
		}
	}
	if err := refused.explain(ctx, newBudgets(d), report, true); err != nil {
		return err
	}
	return report.err()
}
