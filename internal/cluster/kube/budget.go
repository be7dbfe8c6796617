package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"machine-pivot/internal/fault"
)

// budgets are the budgets of namespaces, each read when it is needed.
type budgets struct {
	d    *Drainer
	read map[string]namespace
}

// namespace are the budgets of a namespace.
type namespace struct {
	budgets   []policyv1.PodDisruptionBudget
	forbidden bool // the agent may not read them
}

func newBudgets(d *Drainer) *budgets { return &budgets{d, map[string]namespace{}} }

func (b *budgets) of(ctx context.Context, name string) (namespace, error) {
	if n, ok := b.read[name]; ok {
		return n, nil
	}
	path := "/apis/policy/v1/namespaces/" + name + "/poddisruptionbudgets"
	all, err := list[policyv1.PodDisruptionBudget](ctx, b.d, "read the budgets of the namespace "+name, path, "")
	n := namespace{budgets: all, forbidden: fault.KindOf(err) == fault.Refused}
	if n.forbidden {
		err = nil
	}
	b.read[name] = n
	return n, err
}

// protecting returns the budgets of a pod.
func (n namespace) protecting(p *corev1.Pod) (all []policyv1.PodDisruptionBudget) {
	for _, b := range n.budgets {
		if protects(b, p) {
			all = append(all, b)
		}
	}
	return all
}

// protects reports whether a budget counts a pod of its namespace.
func protects(b policyv1.PodDisruptionBudget, p *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(p.Labels))
}

// blocking returns which budgets keep a pod from being evicted, and why. says is what the API server says.
func (b *budgets) blocking(ctx context.Context, p *corev1.Pod, says string) (why string, err error) {
	n, err := b.of(ctx, p.Namespace)
	if err != nil {
		return "", err
	}
	all := n.protecting(p)
	var names []string
	for _, one := range all {
		names = append(names, one.Namespace+"/"+one.Name)
	}
	switch {
	case n.forbidden:
		return "protected by a budget that this agent may not read; the API server says: " + says, nil
	case len(all) == 1:
		return whyBlocked(&all[0]), nil
	case len(all) > 1:
		return "protected by more than one budget, which the API server does not support: " + strings.Join(names, ", "), nil
	}
	return "protected by a budget; the API server says: " + says, nil // it was changed meanwhile
}

// whyBlocked returns why a budget allows no eviction, or not as many as are needed.
func whyBlocked(b *policyv1.PodDisruptionBudget) string {
	name, s := b.Namespace+"/"+b.Name, b.Status
	failed := meta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition)
	switch {
	case failed != nil && failed.Reason == policyv1.SyncFailedReason:
		return fmt.Sprintf("protected by the budget %s, which allows no eviction because its state cannot be computed: %s", name, failed.Message)
	case s.ObservedGeneration < b.Generation:
		return fmt.Sprintf("protected by the budget %s; the cluster has not computed its state yet", name)
	case s.ExpectedPods == 0:
		return fmt.Sprintf("protected by the budget %s, which can never allow an eviction: it counts pods by their controllers, and these have none; change it", name)
	case s.DesiredHealthy >= s.ExpectedPods:
		return fmt.Sprintf("protected by the budget %s, which can never allow an eviction: of %d pods it needs %d; change it, or have more replicas", name, s.ExpectedPods, s.DesiredHealthy)
	}
	return fmt.Sprintf("protected by the budget %s, which allows %d evictions now: of %d pods, %d are healthy, and it needs %d", name, s.DisruptionsAllowed, s.ExpectedPods, s.CurrentHealthy, s.DesiredHealthy)
}

// countUnmanaged finds budgets that allow fewer evictions than there are pods to be evicted that nothing
// creates again: each alone could go, and a dry run counts nothing. Pods of controllers go one after the
// other, so for them one allowed eviction is enough.
func (b *budgets) countUnmanaged(ctx context.Context, pods []*corev1.Pod, r report) error {
	unmanaged := map[string][]*corev1.Pod{}
	for _, p := range pods {
		if metav1.GetControllerOf(p) == nil && healthy(p) {
			unmanaged[p.Namespace] = append(unmanaged[p.Namespace], p)
		}
	}
	for name, pods := range unmanaged {
		if len(pods) < 2 {
			continue
		}
		n, err := b.of(ctx, name)
		if err != nil {
			return err
		}
		for _, one := range n.budgets {
			mine := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !protects(one, p) })
			if allowed := int(one.Status.DisruptionsAllowed); allowed > 0 && allowed < len(mine) {
				why := fmt.Sprintf("no controller creates them again, and the budget %s/%s allows %d evictions of %d; delete them, or change the budget", one.Namespace, one.Name, allowed, len(mine))
				for _, p := range mine {
					r.add(why, p)
				}
			}
		}
	}
	return nil
}

// healthy reports whether a pod counts for its budgets.
func healthy(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && isReady(p) }

// isReady reports whether a pod serves, as its kubelet has said last.
func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
