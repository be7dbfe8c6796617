// Package follow makes what a PoolRollout asks for beside its rollout: the MachineConfigPool of spec.nodeSelector, and a
// MachineConfig of the pool with spec.image, resolved to a digest, and spec.kernelArguments. The tag is resolved once for
// a whole rollout, and again only when that has ended.
//
// The MachineConfig is also the package's memory: which image and which pull secret the nodes are given. A pull secret
// reaches the nodes before the image that needs it, in a rollout of its own.
//
// What somebody else has made is never changed. As package render, this one is meant for the holder of a Lease, and a
// second one does no damage.
package follow

import (
	"context"
	"time"

	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/kargs"
)

// Options are the settings of the controller.
type Options struct {
	Namespace string // of pull secrets
	Root      string // below which registries are configured; "" is "/"
	Now       func() time.Time
}

// follower makes what PoolRollouts ask for.
type follower struct {
	Options
	cached client.Client // PoolRollouts, pools and nodes
	direct client.Reader // asks the API server
	events events.EventRecorder
	policy kargs.Policy
}

// parallel is how many tags are resolved at a time: one that waits for its registry must not keep the others waiting.
const parallel = 8

// Setup adds the controller to a manager.
func Setup(m manager.Manager, o Options) error {
	f := &follower{Options: o, cached: m.GetClient(), direct: m.GetAPIReader(), events: m.GetEventRecorder("pivot-fleet-follow"),
		policy: kargs.DefaultPolicy()}
	return ctrl.NewControllerManagedBy(m).Named("follow").
		For(&api.PoolRollout{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, ends()))).
		Owns(&api.MachineConfigPool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&api.MachineConfig{}, builder.OnlyMetadata, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(f)
}

// ends passes the end of a rollout.
func ends() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*api.PoolRollout)
		after, ok2 := e.ObjectNew.(*api.PoolRollout)
		return ok1 && ok2 && before.Status.Ended != after.Status.Ended
	}}
}

// Reconcile implements reconcile.Reconciler. It asks the API server, because a cache may not have what it has written last.
func (f *follower) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	r := &api.PoolRollout{}
	if err := f.direct.Get(ctx, request.NamespacedName, r); err != nil || r.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // what it owns is deleted with it
	}
	err := f.update(ctx, r)
	switch {
	case api.HasChanged(err):
		return ctrl.Result{RequeueAfter: time.Second}, nil
	case err != nil && r.Status.Problem == "": // it is not reported yet
		return ctrl.Result{}, err
	case err != nil:
		return ctrl.Result{RequeueAfter: retryAfter}, nil
	case r.Spec.Image == nil:
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(f.left(r), time.Second)}, nil
}
