package admission

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// PartitionedName is the name of the ConfigMap that remembers which workload types are partitioned, each with the time
// since when. Once a type is, it stays so when a node without it joins, and after a restart. Else the time of a pod's
// creation would decide whether it is on all CPUs. Whoever removes a key switches that type off.
const PartitionedName = "pivot-partitioned-workloads"

// partitioned says which workload types are partitioned.
type partitioned struct {
	namespace string
	nodes     client.Reader // of a cache
	census    *census       // of the same
	memory    client.Reader // of a cache of the one ConfigMap
	cache     cache.Cache   // the same
	writer    client.Client
	events    events.EventRecorder
}

// off returns why a workload type is not partitioned; "" if it is.
func (p *partitioned) off(ctx context.Context, workload string) string {
	var m corev1.ConfigMap
	if err := p.memory.Get(ctx, p.key(), &m); err == nil {
		if _, on := m.Data[workload]; on {
			return ""
		}
	} else if !apierrors.IsNotFound(err) {
		return "it is not known whether the workload is partitioned: " + err.Error()
	}
	return p.census.lacking(workload)
}

func (p *partitioned) key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.namespace, Name: PartitionedName}
}

// tell names each node that lacks the resource of a partitioned workload in an event of the node, which kubectl describe
// node shows. No pod of the workload can run there.
func (p *partitioned) tell(nodes []corev1.Node, count *census, active []string) {
	for i := range nodes {
		for _, workload := range active {
			if !slices.Contains(count.of[nodes[i].Name], workload) {
				p.events.Eventf(&nodes[i], nil, corev1.EventTypeWarning, "WorkloadMissing", "JudgeWorkloads",
					"the workload %s is partitioned in this cluster, but the node does not report %s%s: its pods cannot run here. Give the node the CPU partitioning of the others", workload, workload, resourceSuffix)
			}
		}
	}
}

// Reconcile remembers the types that all nodes report. It runs where the Lease is, so that the webhooks, which
// also answer trials, write nothing.
func (p *partitioned) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var nodes corev1.NodeList
	if err := p.nodes.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil { // the census may not have seen the change yet
		return reconcile.Result{}, err
	}
	count := countOf(nodes.Items)
	found := count.everywhere()
	var m corev1.ConfigMap
	err := p.memory.Get(ctx, p.key(), &m)
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, err
	}
	missing := err != nil
	p.tell(nodes.Items, count, slices.Sorted(maps.Keys(m.Data)))
	before, data := m.DeepCopy(), maps.Clone(m.Data)
	if data == nil {
		data = map[string]string{}
	}
	for _, workload := range found {
		if _, on := data[workload]; !on {
			data[workload] = time.Now().UTC().Format(time.RFC3339)
		}
	}
	if maps.Equal(data, before.Data) {
		return reconcile.Result{}, nil
	}
	m.Data = data
	if missing {
		m.ObjectMeta = metav1.ObjectMeta{Namespace: p.namespace, Name: PartitionedName}
		return reconcile.Result{}, p.writer.Create(ctx, &m)
	}
	return reconcile.Result{}, p.writer.Patch(ctx, &m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
