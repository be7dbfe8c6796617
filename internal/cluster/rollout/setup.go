package rollout

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machine-pivot/internal/cluster/api"
)

// Options are the settings of the controller.
type Options struct {
	Self    string // the node on which it runs, which is changed last; "" if that is not known
	Metrics prometheus.Registerer
}

// Caches returns how the manager keeps the objects of which a fleet has many: without what nobody uses.
func Caches() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Node{}:    {Transform: trimNode},
		&api.NodeSystem{}: {Transform: trimSystem},
	}
}

// Setup adds the controller to a manager with caches as Caches says.
func Setup(m manager.Manager, o Options) error {
	k := &Kube{Cached: m.GetClient(), Direct: m.GetAPIReader(), Writer: m.GetClient(), Status: m.GetClient().Status(),
		Events: m.GetEventRecorder("pivot-fleet"), Now: time.Now, Self: o.Self}
	gauges, err := newMeasured(o.Metrics)
	if err != nil {
		return err
	}
	r := &reconciler{Controller: Controller{Cluster: k, Decide: Decide, Decided: gauges.pools}}
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "fleet"}}}
	})
	return ctrl.NewControllerManagedBy(m).Named("rollout").
		Watches(&api.MachineConfigPool{}, one).
		Watches(&api.PoolRollout{}, one).
		Watches(&corev1.Node{}, one).
		Watches(&api.NodeSystem{}, one).
		Complete(r)
}

// reconciler decides for the whole fleet at a time: what one node may do depends on all others.
type reconciler struct {
	Controller
	last atomic.Int64 // when the last pass began, in nanoseconds
}

// The times between passes.
const (
	shortest = time.Second
	// longest is how often the workloads of the checks are looked at, which are not watched.
	longest = time.Minute
)

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := time.Now()
	if wait := time.Unix(0, r.last.Load()).Add(shortest).Sub(now); wait > 0 && wait <= shortest {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	r.last.Store(now.UnixNano())
	next, err := r.Pass(ctx)
	switch {
	case errors.Is(err, ErrConflict), errors.Is(err, ErrRefused): // the caches are about to have what has changed
		return reconcile.Result{RequeueAfter: shortest}, nil
	case err != nil:
		return reconcile.Result{}, err
	case next.IsZero():
		return reconcile.Result{RequeueAfter: longest}, nil
	}
	return reconcile.Result{RequeueAfter: min(max(time.Until(next), shortest), longest)}, nil
}
