package rollout

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"machine-pivot/internal/cluster/api"
)

// Cluster is what a Controller reads and writes.
type Cluster interface {
	// Fleet returns the fleet as it is known. Each object may be older than what the cluster has.
	Fleet(ctx context.Context) (Fleet, error)
	// Fence changes a node if it is the version that is known; else it returns ErrConflict. For the node, this means
	// that it is not asked for a download any more, not Pending, and guarded for a while only. What was decided on before can then not be written
	// on the node any more. token is different for each version of a PoolRollout.
	Fence(ctx context.Context, n Node, token string) error
	// Exists reports whether the cluster has a node, from the cluster itself.
	Exists(ctx context.Context, node string) (bool, error)
	// Take writes the status of a pool's PoolRollout, if that is the version that is known; else it returns ErrConflict,
	// also if the status is the same. If there is none, it creates one before, with Finalizer if the status has slots.
	Take(ctx context.Context, p Pool, s api.PoolRolloutStatus) error
	// Hold gives a PoolRollout these finalizers, if it is the version that is known; else it returns ErrConflict. It
	// returns the new version.
	Hold(ctx context.Context, p Pool, finalizers []string) (version string, err error)
	// Give gives a configuration to a node, and guards it, if it is the version that is known; else it returns ErrConflict.
	// It is not asked for a download any more. If it says that this configuration has failed, it tries it again.
	Give(ctx context.Context, c Change) error
	// Run creates the Job of a hook; one that exists already is no error.
	Run(ctx context.Context, h Hook) error
	// AskDownload asks a node to download a configuration, if it is the version that is known; else it returns
	// ErrConflict.
	AskDownload(ctx context.Context, n Node, config string) error
	// Mark changes the marks of a node, if it is the version that is known; else it returns ErrConflict.
	Mark(ctx context.Context, m Marked) error
	// Show writes the status of a pool, if it is the version that is known; else it returns ErrConflict.
	Show(ctx context.Context, p Pool, s api.MachineConfigPoolStatus) error
	// Record records an event.
	Record(ctx context.Context, p Pool, e Event) error
}

// ErrRefused is that the API server does not let the controller change a node. The next pass knows it as Node.Refused,
// for a minute: the node keeps its slot and is named, and all others go on.
var ErrRefused = errors.New("the API server refuses the change")

// ErrConflict is that an object has been changed since it was read. The next pass reads it again.
var ErrConflict = errors.New("the object has been changed")

// Controller carries out decisions.
type Controller struct {
	Cluster Cluster
	Decide  func(Fleet) Decision
	// Decided is told each decision, before it is carried out; nil: nobody is.
	Decided func(Fleet, Decision)
	Now     func() time.Time // nil: time.Now
}

// longestLoop is for how long nodes are changed by one decision. Then a pass ends, and the next one sees what may have
// stopped the pool since. The other nodes have their slots, and get their configuration then.
const longestLoop = 5 * time.Second

// Pass decides once, for the whole fleet, and carries that out. It returns when the next pass is due even if nothing
// changes; zero: never. A pool with failing requests does not keep the others from their own.
func (c Controller) Pass(ctx context.Context) (next time.Time, err error) {
	f, err := c.Cluster.Fleet(ctx)
	if err != nil {
		return time.Time{}, err
	}
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	until := now().Add(longestLoop)
	old := func() error {
		if now().After(until) {
			return fmt.Errorf("the decision is older than %s: %w", longestLoop, ErrConflict)
		}
		return nil
	}
	d := c.Decide(f)
	if c.Decided != nil {
		c.Decided(f, d)
	}
	var failed []error
	for i := range d.Pools {
		if err := c.carryOut(ctx, f.Pools[i], d.Pools[i], old); err != nil {
			failed = append(failed, fmt.Errorf("cannot roll out to the pool %s: %w", f.Pools[i].Name, err))
		}
	}
	for _, m := range d.Marked {
		if err := old(); err != nil {
			return d.Next, errors.Join(append(failed, err)...)
		}
		failed = append(failed, c.Cluster.Mark(ctx, m))
	}
	return d.Next, errors.Join(failed...)
}

// carryOut carries out the decision for a pool. The order is the one that the package's comment proves.
// old returns an error once the decision is too old for further changes.
func (c Controller) carryOut(ctx context.Context, p Pool, d PoolDecision, old func() error) error {
	if err := c.hold(ctx, &p, d); err != nil {
		return err
	}
	for _, n := range d.Released {
		if err := old(); err != nil {
			return err
		}
		if err := c.Cluster.Fence(ctx, n, p.RolloutVersion); err != nil {
			return err
		}
	}
	for _, name := range d.Gone {
		if exists, err := c.Cluster.Exists(ctx, name); err != nil {
			return err
		} else if exists {
			return fmt.Errorf("the node %s: %w", name, ErrConflict)
		}
	}
	if len(d.Given)+len(d.Asked) > 0 || p.RolloutVersion == "" || !reflect.DeepEqual(p.Rollout, d.Rollout) {
		if err := c.Cluster.Take(ctx, p, d.Rollout); err != nil {
			return err
		}
	}
	// A node that cannot be given its configuration has a slot, and gets it in the next pass.
	var failed []error
	for _, n := range d.Given {
		if old() == nil {
			failed = append(failed, c.Cluster.Give(ctx, n))
		}
	}
	for _, h := range d.Hooks {
		if old() == nil {
			failed = append(failed, c.Cluster.Run(ctx, h))
		}
	}
	for _, n := range d.Asked {
		if old() == nil {
			failed = append(failed, c.Cluster.AskDownload(ctx, n, d.Rollout.Target))
		}
	}
	if len(d.Given)+len(d.Asked) > 0 {
		failed = append(failed, old())
	}
	if p.Orphan {
		return errors.Join(failed...)
	}
	if !reflect.DeepEqual(p.Status, d.Status) {
		failed = append(failed, c.Cluster.Show(ctx, p, d.Status))
	}
	for _, e := range d.Events {
		failed = append(failed, c.Cluster.Record(ctx, p, e))
	}
	return errors.Join(failed...)
}

// hold keeps a PoolRollout from being deleted exactly while it has slots: it has Finalizer from before the first one is
// taken until after the last one was given back. So slots are never forgotten, and nothing has to run for a PoolRollout
// without slots to go.
func (c Controller) hold(ctx context.Context, p *Pool, d PoolDecision) (err error) {
	held := slices.Contains(p.Finalizers, Finalizer)
	switch {
	case p.RolloutVersion == "": // Take creates it
	case hasSlots(d.Rollout) && !held && !p.Deleted: // what is being deleted gets no finalizer, and no slot
		p.RolloutVersion, err = c.Cluster.Hold(ctx, *p, append(slices.Clone(p.Finalizers), Finalizer))
	case !hasSlots(p.Rollout) && !hasSlots(d.Rollout) && held:
		without := slices.DeleteFunc(slices.Clone(p.Finalizers), func(f string) bool { return f == Finalizer })
		p.RolloutVersion, err = c.Cluster.Hold(ctx, *p, without)
	}
	return err
}

// hasSlots reports whether nodes have slots, or places for a download.
func hasSlots(s api.PoolRolloutStatus) bool { return len(s.Taken)+len(s.Downloads) > 0 }

// Finalizer keeps a PoolRollout while it has slots.
const Finalizer = api.Prefix + "/slots"

// Released is the annotation of a Node by which the controller changes it before it gives its slot back. Its
// value, the resourceVersion of the PoolRollout, means nothing to the node.
const Released = api.Prefix + "/slot-released"
