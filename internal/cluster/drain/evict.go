package drain

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusals are why the API server does not evict pods now, by the pod.
type refusals map[*corev1.Pod]refusal

// refusal is why the API server does not evict a pod now.
type refusal struct {
	budget bool   // the cause is a budget, or that there is more than one
	ending bool   // the cause is that the pod's namespace is being deleted, and so the pod will be
	says   string // the API server, about it
}

// evictAll evicts pods until a time, one after the other, and returns those that are refused. The API
// server counts what a budget allows.
func (d *Drainer) evictAll(ctx context.Context, pods []*corev1.Pod, until time.Time, dryRun bool) (refusals, error) {
	refused := refusals{}
	for _, p := range pods {
		if d.Cluster.Now().After(until) {
			refused[p] = refusal{says: "not tried, because the time was up"}
			continue
		}
		r, err := d.evict(ctx, p, dryRun)
		if err != nil {
			return nil, err
		}
		if r != nil {
			refused[p] = *r
		}
	}
	return refused, nil
}

// evict asks for the eviction of exactly this pod: one of the same name that was created meanwhile, perhaps
// on another node, has another UID. The pod ends within its own grace period. An error is about the API
// server as a whole.
func (d *Drainer) evict(ctx context.Context, p *corev1.Pod, dryRun bool) (*refusal, error) {
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	body, err := json.Marshal(policyv1.Eviction{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, DeleteOptions: &options,
	})
	if err != nil {
		return nil, err
	}
	request := d.Cluster.API.Post().AbsPath("/api/v1/namespaces", p.Namespace, "pods", p.Name, "eviction").Body(body)
	err = d.Cluster.Do(ctx, request, "evict the pod "+nameOf(p), nil)
	if err == nil && !dryRun {
		d.Log.WithField("pod", nameOf(p)).Info("evicted a pod")
	}
	return refusalOf(err)
}

// refusalOf tells the refusal of an eviction from a failure. A pod that is gone, or another one of its
// name, is neither.
func refusalOf(err error) (*refusal, error) {
	failed, answered := errors.AsType[*apierrors.StatusError](err)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil, nil
	case !answered:
		return nil, err
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &refusal{ending: true, says: "its namespace is being deleted"}, nil
	}
	if cause, is := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); is {
		return &refusal{budget: true, says: cause.Message}, nil
	}
	if apierrors.IsUnauthorized(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) {
		return nil, err
	}
	says := failed.Status().Message
	return &refusal{budget: strings.Contains(says, "more than one PodDisruptionBudget"), says: says}, nil
}

// explain adds to a report why pods were refused; with ending, also those that will end by themselves.
func (r refusals) explain(ctx context.Context, of *budgets, report report, ending bool) error {
	for p, refused := range r {
		if refused.ending && !ending {
			continue
		}
		why := refused.says
		if refused.budget {
			var err error
			if why, err = of.blocking(ctx, p, refused.says); err != nil {
				return err
			}
		}
		report.add(why, p)
	}
	return nil
}
