package rollout

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machine-pivot/internal/cluster/api"
)

// readStaticPods finds out whether the static pods of the control plane are ready, while its pool is in change: a node
// serves only when they are. Kubelet is Ready before etcd has joined its quorum, and the next node must not begin then.
func (k *Kube) readStaticPods(ctx context.Context, f *Fleet) error {
	i := slices.IndexFunc(f.Pools, func(p Pool) bool { return p.Name == master })
	if i < 0 {
		return nil
	}
	p := &f.Pools[i]
	changes := len(p.Rollout.Taken) > 0
	var nodes []*Node
	for i := range f.Nodes {
		if n := &f.Nodes[i]; api.IsControlPlane(n.Labels) {
			nodes = append(nodes, n)
			changes = changes || n.desired() != p.Configuration.Name
		}
	}
	for _, n := range nodes {
		if !changes || n.Problem != "" {
			continue
		}
		if problem, err := k.staticProblem(ctx, n.Name); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			n.Problem = fmt.Sprintf("has static pods that cannot be read: %v", err)
		} else {
			n.Problem = problem
		}
	}
	return nil
}

// staticProblem returns which static pod of a node is not ready; "" if all are.
func (k *Kube) staticProblem(ctx context.Context, node string) (string, error) {
	var pods corev1.PodList
	err := k.Direct.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node})
	for _, p := range pods.Items {
		_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if mirror && !ready && p.Status.Phase != corev1.PodSucceeded {
			return fmt.Sprintf("has the static pod %s/%s, which is not ready", p.Namespace, p.Name), nil
		}
	}
	return "", err
}
