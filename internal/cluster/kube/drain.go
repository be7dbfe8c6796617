package kube

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/retry"
)

// Drainer empties one node by eviction, with the node's own credentials. It implements node.Drainer.
// docs/cluster-drain.md has the rules as a table.
type Drainer struct {
	Cluster *Cluster             // with the node's name
	Self    types.NamespacedName // the agent's own pod; empty if it does not run as a pod
	Policy  DrainPolicy
	// Limit is how long Drain and Rehearse may take, but for one request that is being made.
	Limit time.Duration
	Log   *logrus.Logger

	seen map[types.UID]sighting // of the pods of the last look
}

// The times between two looks at the pods of a drain.
const (
	firstLook = 500 * time.Millisecond
	lastLook  = 10 * time.Second
)

// Rehearse implements node.Drainer: it asks the API server for each eviction as a dry run, which nobody takes for a
// real one. What only the policy forbids is an error of kind fault.Refused. All else is what a drain would wait for if
// nothing changed, and much does as soon as the node is cordoned. Only the answer of a budget about a pod counts, so a
// pod that was not looked at, or has moved, is no obstacle.
func (d *Drainer) Rehearse(ctx context.Context) error {
	until := d.Cluster.Now().Add(d.Limit)
	f, err := d.look(ctx)
	if err != nil {
		return err
	}
	report, kind := f.stopped, fault.Unavailable
	if len(report) > 0 {
		kind = fault.Refused
	}
	for _, p := range f.ending {
		if late := d.late(p); late >= stuck {
			report.add(d.whyNotEnded(p), p)
		}
	}
	refused := d.evictAll(ctx, f.going, until, true)
	maps.DeleteFunc(refused, func(_ *corev1.Pod, r refusal) bool { return !r.budget })
	protected := newBudgets(d)
	if err := refused.explain(ctx, protected, report); err != nil {
		return err
	}
	if err := protected.countUnmanaged(ctx, f.going, report); err != nil {
		return err
	}
	return report.err(kind)
}

// Drain implements node.Drainer. A pod that comes back during the drain does not matter, however it gets there: it, or the
// next one in its place, would do so for ever.
func (d *Drainer) Drain(ctx context.Context, of node.Node) error {
	until := d.Cluster.Now().Add(d.Limit)
	back := comeback{}
	looks := retry.Policy{First: firstLook, Cap: lastLook}
	for n := 1; ; n++ {
		f, err := d.look(ctx)
		if err != nil {
			return err
		}
		if f.on.UID != of.UID || !f.on.Unschedulable {
			return fmt.Errorf("cannot drain the node %s: %w: it is another one, or not cordoned any more", of.Name, node.ErrConflict)
		}
		back.leave(&f)
		if err := f.stopped.err(fault.Unavailable); err != nil {
			return err
		}
		if len(f.going)+len(f.ending) == 0 {
			return nil
		}
		refused := d.evictAll(ctx, f.going, until, false)
		d.force(ctx, of, refused)
		wait := looks.Wait(n, nil)
		if d.Cluster.Now().Add(wait).After(until) {
			return d.unfinished(ctx, f, refused)
		}
		if err := retry.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// unfinished returns what a drain at the end of its time waits for.
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
	if err := refused.explain(ctx, newBudgets(d), report); err != nil {
		return err
	}
	return report.err(fault.Unavailable)
}
