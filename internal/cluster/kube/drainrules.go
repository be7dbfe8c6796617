package kube

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machine-pivot/internal/cluster/node"
)

// DrainPolicy is what an administrator decides about pods that lose something by an eviction.
type DrainPolicy struct {
	EmptyDir  string // Evict or Stop: running pods with a volume emptyDir, in memory or not; its data is lost
	Unmanaged string // Evict or Stop: running pods without a controller, which nothing creates again
	Finished  string // Evict or Leave: pods with containers that have ended for good
}

// The values of a DrainPolicy.
const (
	Evict = "evict" // them
	Stop  = "stop"  // the drain, before anything is evicted
	Leave = "leave" // them as they are
)

// verdict is what a drain does with a pod.
type verdict int

const (
	stays  verdict = iota
	goes           // it is evicted
	ending         // somebody has deleted it, so it is only waited for
	stops          // the policy does not let it go
)

// criticalPod is the annotation of critical pods. Kubernetes itself ignores it since 1.16.
const criticalPod = "scheduler.alpha.kubernetes.io/critical-pod"

// nodeCritical is the priority of the class system-node-critical. No other class can have as much.
const (
	nodeCriticalClass = "system-node-critical"
	nodeCritical      = 2_000_001_000
)

// unreported is how long a drain waits for a pod of a kubelet that is not Ready. It is counted from the end of the grace period
// if somebody has deleted the pod, or else while the pod does not serve. A budget counts such a pod as disrupted already, and would hold the node up for ever. What is to
// end that is the change for which the node is drained. It is what cluster-api waits.
const unreported = 5 * time.Minute

// judge decides about a pod of a node, and says why if it stops the drain. The first rule that fits applies.
func (d *Drainer) judge(p *corev1.Pod, on node.Node) (v verdict, why string) {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	_, critical := p.Annotations[criticalPod]
	owner := metav1.GetControllerOf(p)
	finished := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	switch {
	case mirror: // kubelet runs it from a file, whatever the API server says
		return stays, ""
	case d.Self.Name != "" && p.Namespace == d.Self.Namespace && p.Name == d.Self.Name:
		return stays, ""
	case owner != nil && owner.Kind == "DaemonSet": // it would come back at once
		return stays, ""
	case critical, p.Spec.PriorityClassName == nodeCriticalClass, p.Spec.Priority != nil && *p.Spec.Priority >= nodeCritical:
		return stays, ""
	case p.DeletionTimestamp != nil && !on.Ready && d.late(p) >= unreported:
		return stays, ""
	case p.DeletionTimestamp != nil:
		return ending, ""
	case d.lost(p) >= unreported:
		return stays, ""
	case finished && d.Policy.Finished == Leave:
		return stays, ""
	case finished:
		return goes, ""
	case owner == nil && d.Policy.Unmanaged == Stop:
		return stops, "no controller creates them again; delete them, or let the agent evict such pods with --drain-unmanaged=evict"
	case slices.ContainsFunc(p.Spec.Volumes, isEmptyDir) && d.Policy.EmptyDir == Stop:
		return stops, "they have data in an emptyDir, which would be lost; delete them, or let the agent evict such pods with --drain-emptydir=evict"
	}
	return goes, ""
}

func isEmptyDir(v corev1.Volume) bool { return v.EmptyDir != nil }

// found are the pods of a node that matter to a drain.
type found struct {
	on            node.Node
	going, ending []*corev1.Pod
	stopped       report
}

// sort adds a pod to those found.
func (f *found) sort(p *corev1.Pod, v verdict, why string) {
	switch v {
	case goes:
		f.going = append(f.going, p)
	case ending:
		f.ending = append(f.ending, p)
	case stops:
		f.stopped.add(why, p)
	}
}

// comeback is what a drain has seen: the UIDs of pods, and who makes them.
type comeback map[types.UID]bool

// leave leaves out the pods that were not there when the drain has seen others of the same maker, which have come back.
func (c comeback) leave(f *found) {
	back := func(p *corev1.Pod) bool { return c[maker(p)] && !c[p.UID] }
	f.going = slices.DeleteFunc(f.going, back)
	f.ending = slices.DeleteFunc(f.ending, back)
	for _, p := range slices.Concat(f.going, f.ending) {
		c[maker(p)], c[p.UID] = true, true
	}
}

// maker returns the UID of a pod's controller or, since somebody may create a pod again under its name, what stands for
// that.
func maker(p *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOf(p); owner != nil {
		return owner.UID
	}
	return types.UID(nameOf(p))
}
