package kube

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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
	says   string // the API server, about it
}

// atOnce is how many evictions are asked for at a time: a webhook may take half a minute for one of them.
const atOnce = 16

// evictAll evicts pods until a time, several at once, and returns those that are refused. No answer about one of them ends
// the round for the others. The API server counts what a budget allows.
func (d *Drainer) evictAll(ctx context.Context, pods []*corev1.Pod, until time.Time, dryRun bool) refusals {
	refused := refusals{}
	var lock sync.Mutex
	var all errgroup.Group
	all.SetLimit(atOnce)
	for _, p := range pods {
		all.Go(func() error {
			r := &refusal{says: "not tried, because the time was up"}
			if !d.Cluster.Now().After(until) {
				r = d.evict(ctx, p, dryRun)
			}
			if r != nil {
				lock.Lock()
				defer lock.Unlock()
				refused[p] = *r
			}
			return nil
		})
	}
	_ = all.Wait() // what is refused is no error
	return refused
}

// evict asks for the eviction of exactly this pod: one of the same name that was created meanwhile, perhaps
// on another node, has another UID. The pod ends within its own grace period. A dry run is one for webhooks, too, by the
// request's parameter: the API server does not ask those that would do something.
func (d *Drainer) evict(ctx context.Context, p *corev1.Pod, dryRun bool) *refusal {
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))}
	request := d.Cluster.API.Post().AbsPath("/api/v1/namespaces", p.Namespace, "pods", p.Name, "eviction")
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	body, err := json.Marshal(policyv1.Eviction{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, DeleteOptions: &options,
	})
	if err == nil {
		err = d.Cluster.do(ctx, request.Body(body), "evict the pod "+nameOf(p), nil)
	}
	if err == nil && !dryRun {
		d.Log.WithField("pod", nameOf(p)).Info("evicted a pod")
	}
	return refusalOf(err)
}

// refusalOf returns why an eviction was refused; nil if it was not. A pod that is gone, or another one of its name, is no
// refusal.
func refusalOf(err error) *refusal {
	failed, answered := errors.AsType[*apierrors.StatusError](err)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case !answered:
		return &refusal{says: err.Error()}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &refusal{says: "its namespace is being deleted"}
	}
	if cause, is := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); is {
		return &refusal{budget: true, says: cause.Message}
	}
	says := failed.Status().Message
	return &refusal{budget: strings.Contains(says, "more than one PodDisruptionBudget"), says: says}
}

// explain adds to a report why pods were refused.
func (r refusals) explain(ctx context.Context, of *budgets, report report) error {
	for p, refused := range r {
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
