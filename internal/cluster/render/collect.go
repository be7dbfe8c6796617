package render

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/machineconfig"
)

// The rule: a rendered MachineConfig is deleted if, for an hour, no Node, pool or rollout of a pool has named it. It is
// not one of the newest of a pool that exists. So the results of a pool that is deleted outlive it for as long as its
// nodes need them. They have no owner: Kubernetes would delete them with the pool, whoever needs them. No pool has a
// finalizer: it would keep the pool from being deleted where no renderer runs any more.
//
// It is deleted in two steps: it is marked as unneeded, and deleted if it still is, by a request that fails if it has
// changed. The deletion alone could be wrong: the rollout may be about to give it to a node, from a cache that is
// behind. But whoever begins to need it has its name from an object that names it now, or did so shortly before. So it
// is not marked, or the mark is younger than the grace. The renderer removes the mark before it names a marked one in a
// pool again, and then a deletion that was decided before fails.

// candidate is a rendered MachineConfig of a pool.
type candidate struct {
	name    string
	created time.Time
	marked  time.Time // since when it is unneeded; zero: it has no mark
}

// plan is what to do with candidates, by their names.
type plan struct {
	mark, unmark, remove []string
	next                 time.Duration // after what time to look again; 0: at the next change of the pool
}

// planned decides which rendered MachineConfigs are deleted: never a needed one, and the newest ones are kept.
func planned(all []candidate, needed map[string]bool, keep int, grace time.Duration, now time.Time) plan {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b candidate) int {
		return cmp.Or(b.created.Compare(a.created), cmp.Compare(a.name, b.name))
	})
	var p plan
	for _, c := range sorted {
		unneeded := !needed[c.name]
		if unneeded && keep > 0 {
			keep, unneeded = keep-1, false
		}
		left := c.marked.Add(grace).Sub(now)
		switch {
		case !unneeded && !c.marked.IsZero():
			p.unmark = append(p.unmark, c.name)
		case !unneeded:
			continue
		case c.marked.IsZero(), left > grace: // a mark of the future is of a wrong clock
			p.mark = append(p.mark, c.name)
			left = grace
		case left <= 0:
			p.remove = append(p.remove, c.name)
			continue
		}
		if unneeded && (p.next == 0 || left < p.next) {
			p.next = left
		}
	}
	return p
}

// collectGone is collect for a pool that is deleted. Nodes are not watched: they are looked at until nothing is left.
func (r *renderer) collectGone(ctx context.Context, pool string) (time.Duration, error) {
	left, next, err := r.collect(ctx, pool, 0)
	if left > 0 && next == 0 {
		next = r.Grace
	}
	return next, err
}

// collect deletes the rendered MachineConfigs of a pool that nothing needs. It returns how many there were, and when
// to look again.
func (r *renderer) collect(ctx context.Context, pool string, keep int) (were int, next time.Duration, err error) {
	list := metadata()
	if err := r.cached.List(ctx, list); err != nil {
		return 0, 0, err
	}
	byName := map[string]*metav1.PartialObjectMetadata{}
	var all []candidate
	for i := range list.Items {
		o := &list.Items[i]
		if o.DeletionTimestamp == nil && renderedFor(o) == pool {
			byName[o.Name] = o
			marked, _ := time.Parse(time.RFC3339, o.Annotations[api.UnneededSince]) // what cannot be read is marked anew
			all = append(all, candidate{o.Name, o.CreationTimestamp.Time, marked})
		}
	}
	if len(all) <= keep { // most often; then nobody needs to be asked
		return len(all), 0, nil
	}
	needed, err := r.allNeeded(ctx)
	if err != nil {
		return len(all), 0, fmt.Errorf("cannot tell which rendered MachineConfigs are needed: %w", err)
	}
	plan := planned(all, needed, keep, r.Grace, r.now())
	return len(all), plan.next, r.carryOut(ctx, plan, byName)
}

// carryOut does what is planned, until an error.
func (r *renderer) carryOut(ctx context.Context, p plan, byName map[string]*metav1.PartialObjectMetadata) error {
	for _, name := range p.mark {
		if err := r.mark(ctx, byName[name], r.now().UTC().Format(time.RFC3339)); err != nil {
			return err
		}
	}
	for _, name := range p.unmark {
		if err := r.mark(ctx, byName[name], ""); err != nil {
			return err
		}
	}
	for _, name := range p.remove {
		if err := r.remove(ctx, byName[name]); err != nil {
			return err
		}
	}
	return nil
}

// renderedFor returns the pool for which a MachineConfig was rendered; "" if the renderer has not made it, or if it
// is none of a pool.
func renderedFor(o client.Object) string {
	if !strings.HasPrefix(o.GetName(), api.RenderedPrefix) {
		return ""
	}
	return o.GetAnnotations()[api.RenderedFor]
}

// mark sets or removes the mark of a rendered MachineConfig. It fails if the object has changed.
func (r *renderer) mark(ctx context.Context, o *metav1.PartialObjectMetadata, since string) error {
	before := o.DeepCopy()
	before.TypeMeta = metav1.TypeMeta{APIVersion: machineconfig.APIVersion, Kind: machineconfig.Kind}
	after := before.DeepCopy()
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	after.Annotations[api.UnneededSince] = since
	if since == "" {
		delete(after.Annotations, api.UnneededSince)
	}
	err := r.cached.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("cannot mark the MachineConfig %s: %w", o.Name, err)
	}
	return nil
}

// needed removes the mark of an existing rendered MachineConfig, before a pool names it.
func (r *renderer) needed(ctx context.Context, mc *api.MachineConfig) error {
	if mc.Annotations[api.UnneededSince] == "" {
		return nil
	}
	return r.mark(ctx, &metav1.PartialObjectMetadata{ObjectMeta: mc.ObjectMeta}, "")
}

// rendersName matches the names of rendered MachineConfigs in a text.
func rendersName() *regexp.Regexp {
	return regexp.MustCompile(regexp.QuoteMeta(api.RenderedPrefix) + `[a-z0-9.-]*[a-z0-9]`)
}

// pageSize is how many objects are listed with one request.
const pageSize = 500

// allNeeded returns the names of all rendered MachineConfigs that a node, a pool or its rollout names. It reads
// from the API server, not from a cache.
func (r *renderer) allNeeded(ctx context.Context) (map[string]bool, error) {
	needed := map[string]bool{}
	name := rendersName()
	add := func(texts iter.Seq[string]) {
		for text := range texts {
			for _, found := range name.FindAllString(text, -1) {
				needed[found] = true
			}
		}
	}
	nodes := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	for {
		if err := r.direct.List(ctx, nodes, client.Limit(pageSize), client.Continue(nodes.Continue)); err != nil {
			return nil, err
		}
		for i := range nodes.Items { // any annotation, whoever writes it: to keep too much is no harm
			add(maps.Values(nodes.Items[i].Annotations))
		}
		if nodes.Continue == "" {
			break
		}
	}
	var pools api.MachineConfigPoolList
	if err := r.direct.List(ctx, &pools); err != nil {
		return nil, err
	}
	exists := map[string]bool{}
	for _, p := range pools.Items {
		exists[p.Name] = true
		add(slices.Values([]string{p.Spec.Configuration.Name, p.Status.Configuration.Name}))
		add(maps.Values(p.Annotations))
	}
	var rollouts api.PoolRolloutList
	if err := r.direct.List(ctx, &rollouts); err != nil {
		return nil, err
	}
	for _, o := range rollouts.Items {
		if !exists[o.Name] { // it keeps its settings for another pool of that name
			continue
		}
		add(slices.Values([]string{o.Status.Target, o.Status.LastGood, o.Status.GivenUp}))
	}
	return needed, nil
}
