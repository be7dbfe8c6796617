package rollout

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"machine-pivot/internal/cluster/api"
)

// nodeOf returns what is used of a Node, and of its NodeSystem if it has one.
func nodeOf(n *corev1.Node, s *api.NodeSystem) Node {
	out := Node{Name: n.Name, Version: n.ResourceVersion, Labels: n.Labels, Annotations: n.Annotations,
		Created: n.CreationTimestamp.Time, Cordoned: n.Spec.Unschedulable, Taints: n.Spec.Taints, BootID: n.Status.NodeInfo.BootID}
	out.Problem = problemOf(n)
	if s != nil {
		out.System = api.SystemOf(s.Status)
	}
	return out
}

// problemOf returns why kubelet does not take pods.
func problemOf(n *corev1.Node) string {
	if !isReady(n) {
		return "is not Ready"
	}
	for _, c := range n.Status.Conditions {
		if (c.Type == corev1.NodeDiskPressure || c.Type == corev1.NodeNetworkUnavailable) && c.Status != corev1.ConditionFalse {
			return "has " + string(c.Type)
		}
	}
	return ""
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// poolOf returns what is used of a MachineConfigPool, and of its PoolRollout if it has one.
func poolOf(p *api.MachineConfigPool, r *api.PoolRollout) Pool {
	out := Pool{Name: p.Name, UID: string(p.UID), Version: p.ResourceVersion, Generation: p.Generation, Selector: p.Spec.NodeSelector, Paused: p.Spec.Paused,
		MaxUnavailable: p.Spec.MaxUnavailable, Configuration: p.Spec.Configuration, Status: p.Status}
	if r != nil {
		out.withRollout(r)
	}
	return out
}

// orphanOf returns what is used of a PoolRollout without a MachineConfigPool, and whether it is used at all. Its
// settings are not.
func orphanOf(r *api.PoolRollout) (Pool, bool) {
	out := Pool{Name: r.Name, Orphan: true}
	out.withRollout(r)
	out.Spec = api.PoolRolloutSpec{}
	return out, hasSlots(r.Status) || slices.Contains(r.Finalizers, Finalizer)
}

func (p *Pool) withRollout(r *api.PoolRollout) {
	p.RolloutVersion, p.Spec, p.Rollout = r.ResourceVersion, r.Spec, r.Status
	p.RolloutGeneration = r.Generation
	p.Finalizers, p.Deleted = r.Finalizers, r.DeletionTimestamp != nil
}

// trimNode removes what is not used from a Node before it is kept. What other controllers of the fleet may want
// stays: spec, capacity and addresses are small.
func trimNode(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.ManagedFields, n.OwnerReferences, n.Finalizers = nil, nil, nil
		n.Status = corev1.NodeStatus{Conditions: n.Status.Conditions, NodeInfo: n.Status.NodeInfo, Addresses: n.Status.Addresses, Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable}
		n.Annotations = maps.Clone(n.Annotations)
		delete(n.Annotations, corev1.LastAppliedConfigAnnotation)
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].LastHeartbeatTime.Reset()
			n.Status.Conditions[i].Message = ""
		}
	}
	return o, nil
}

// trimSystem removes what is not used from a NodeSystem before it is kept.
func trimSystem(o any) (any, error) {
	if s, ok := o.(*api.NodeSystem); ok {
		s.ManagedFields = nil
		kept := api.NodeSystemStatus{Config: s.Status.Config, BootID: s.Status.BootID, AgentVersion: s.Status.AgentVersion, Download: s.Status.Download}
		kept.KernelArguments.Missing = s.Status.KernelArguments.Missing
		if p := s.Status.Proof; p != nil {
			kept.Proof = &api.Proof{OK: p.OK, Differences: slices.Clone(p.Differences[:min(len(p.Differences), 1)])}
		}
		s.Status = kept
	}
	return o, nil
}

// workloadState returns why a workload is not available, by the numbers of its pods; "" if it is.
func workloadState(generation, observed int64, want, updated, available int32) string {
	switch {
	case observed < generation:
		return "its newest specification is not observed yet"
	case updated < want || available < want:
		return plural(int(want-min(updated, available)), "pod") + " missing"
	}
	return ""
}

// sortFleet puts a fleet in an order that does not depend on the caches.
func sortFleet(f *Fleet) {
	slices.SortFunc(f.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(f.Pools, func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
}
