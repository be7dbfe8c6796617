package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// resourceSuffix ends the name of the resource that each node of a partitioned cluster reports.
const resourceSuffix = ".workload.openshift.io/cores"

// census is which workload types the nodes of a cluster report. It is kept as nodes change, and each answer as long as
// none does. To look at each node for each new pod, or only to copy it out of a cache, would take longer than all the
// rest.
type census struct {
	mu      sync.Mutex
	of      map[string][]string // types by the names of nodes
	answers map[string]string   // of lacking, by type
}

// maxAnswers limits the answers that are kept: namespaces may allow workload types that no node has.
const maxAnswers = 100

// countOf returns the census of some nodes.
func countOf(nodes []corev1.Node) *census {
	c := &census{of: map[string][]string{}, answers: map[string]string{}}
	for i := range nodes {
		c.keep(&nodes[i])
	}
	return c
}

// watch keeps the census as a cache sees nodes change. It returns what waits until all were seen.
func (c *census) watch(ctx context.Context, from cache.Cache) (seen func(context.Context) bool, err error) {
	return follow(ctx, from, "nodes", &corev1.Node{}, c.keep, c.forget)
}

// follow calls keep with each object of a kind as a cache sees it, and forget with one that is deleted. It returns what
// waits until all were seen. what names them.
func follow[T client.Object](ctx context.Context, from cache.Cache, what string, kind T, keep, forget func(T)) (seen func(context.Context) bool, err error) {
	informer, err := from.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", what, err)
	}
	handled, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: typed(keep), UpdateFunc: func(_, o any) { typed(keep)(o) }, DeleteFunc: typed(forget),
	})
	if err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", what, err)
	}
	return func(ctx context.Context) bool { return toolscache.WaitForCacheSync(ctx.Done(), handled.HasSynced) }, nil
}

// typed returns a handler of a cache's objects, and of the last state of one if the cache has missed its deletion.
func typed[T any](handle func(T)) func(any) {
	return func(o any) {
		if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		if object, ok := o.(T); ok {
			handle(object)
		}
	}
}

// keep counts a node as it is now.
func (c *census) keep(n *corev1.Node) {
	types := workloadsOf(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, known := c.of[n.Name]; known && slices.Equal(before, types) {
		return // most changes of a node are about something else
	}
	c.of[n.Name] = types
	clear(c.answers)
}

// forget is keep for a node that is deleted.
func (c *census) forget(n *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, n.Name)
	clear(c.answers)
}

// lacking returns why a workload type is not partitioned by all nodes; "" if it is. Without nodes it is not.
func (c *census) lacking(workload string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, known := c.answers[workload]
	if !known {
		answer = c.judge(workload)
		if len(c.answers) >= maxAnswers {
			clear(c.answers)
		}
		c.answers[workload] = answer
	}
	return answer
}

// judge is lacking without an answer that is kept.
func (c *census) judge(workload string) string {
	var without []string
	for name, types := range c.of {
		if !slices.Contains(types, workload) {
			without = append(without, name)
		}
	}
	switch {
	case len(c.of) == 0:
		return "the cluster has no nodes"
	case len(without) > 0:
		slices.Sort(without)
		return fmt.Sprintf("these nodes do not report %s%s: %s", workload, resourceSuffix, shortList(without))
	}
	return ""
}

// everywhere returns the workload types that all nodes report.
func (c *census) everywhere() []string {
	all := map[string]bool{}
	for _, types := range c.of {
		for _, workload := range types {
			all[workload] = true
		}
	}
	maps.DeleteFunc(all, func(workload string, _ bool) bool { return c.lacking(workload) != "" })
	return slices.Sorted(maps.Keys(all))
}

// workloadsOf returns the workload types with CPUs that a node reports, sorted.
func workloadsOf(n *corev1.Node) (types []string) {
	for name, q := range n.Status.Allocatable {
		if workload, ok := strings.CutSuffix(string(name), resourceSuffix); ok && q.Sign() > 0 {
			types = append(types, workload)
		}
	}
	slices.Sort(types)
	return types
}
