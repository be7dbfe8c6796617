// Package render gives each MachineConfigPool the MachineConfig of its nodes. It merges the MachineConfigs that the
// pool selects, as "pivotctl config render" does with files, and names the result in the pool. Before, it makes
// MachineConfigs of ContainerRuntimeConfigs. It deletes results that nothing needs any more, and lets each node read those
// of its pool.
//
// Names, annotations, owners and conditions are the machine-config operator's, from its pkg/controller/render
// and pkg/controller/container-runtime-config. Unlike there, remote content is fetched, once, and kept; all
// problems are reported at once; and nothing is overwritten.
//
// Everything is level-triggered: an interrupted reconciliation is repeated from what the cluster has. The
// package is meant for one process at a time, the holder of a Lease. A second one does no damage: objects are
// created under names that their content determines, and all other updates fail if the object has changed.
package render

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/fault"
	"machine-pivot/kargs"
)

// Options are the settings of the renderer. Its result depends on the images: they must be those that
// "pivotctl config serve" was given, or else the nodes that it has installed get another MachineConfig.
type Options struct {
	Version         string // of this program, for an annotation of what it makes
	Release         string // release image of the cluster, for an annotation; "": none
	OSImage         string // if the MachineConfigs name none
	ExtensionsImage string // the same
	Keep            int    // how many unneeded rendered MachineConfigs each pool keeps
	// Grace is how long a rendered MachineConfig must have been unneeded until it is deleted. It must be longer
	// than a controller's cache can be behind.
	Grace   time.Duration
	Metrics prometheus.Registerer
}

// renderer is what both reconcilers share.
type renderer struct {
	Options
	cached   client.Client // pools, ContainerRuntimeConfigs, and metadata of MachineConfigs
	direct   client.Reader // MachineConfigs without their content, and all that decides about a deletion
	rules    authored.Rules
	base     authored.Images
	events   events.EventRecorder
	measured *measured
	now      func() time.Time
}

// retries are the delays after temporary failures.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// pools is how many pools are rendered at a time, each by one reconciliation: one that waits for a server with
// remote content must not keep the others waiting.
const pools = 8

// Setup adds the reconcilers of pools, of ContainerRuntimeConfigs and of the readers to a manager.
func Setup(m manager.Manager, o Options) error {
	r := &renderer{
		Options: o, cached: m.GetClient(), direct: m.GetAPIReader(),
		rules:  authored.Rules{KernelArguments: kargs.DefaultPolicy()},
		events: m.GetEventRecorder("pivot-fleet-render"), now: time.Now,
	}
	var err, wrong error
	r.base.OS, err = authored.DefaultImage("the image of the operating system", o.OSImage)
	r.base.Extensions, wrong = authored.DefaultImage("the image of extensions", o.ExtensionsImage)
	if err = fault.Join(err, wrong); err != nil {
		return err
	}
	if r.measured, err = newMeasured(o.Metrics); err != nil {
		return err
	}
	limit := func(parallel int) controller.Options {
		return controller.Options{MaxConcurrentReconciles: parallel, RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)}
	}
	spec := builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))
	err = ctrl.NewControllerManagedBy(m).Named("render").
		For(&api.MachineConfigPool{}, spec).
		WatchesMetadata(&api.MachineConfig{}, handler.EnqueueRequestsFromMapFunc(r.everyPool), content()).
		WithOptions(limit(pools)).
		Complete(calm(r.reconcilePool))
	if err != nil {
		return err
	}
	if err := setupReaders(m); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(m).Named("containerruntime").
		Watches(&api.ContainerRuntimeConfig{}, once(), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&api.MachineConfigPool{}, once(), spec).
		WatchesMetadata(&api.MachineConfig{}, once(), content()).
		WithOptions(limit(1)).
		Complete(calm(r.reconcileRuntime))
}

// once makes one request of any number of events, for a reconciler that looks at everything.
func once() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
}

// content passes events that may change what pools merge, and those about results that somebody has changed or deleted,
// or that were there before. Their pool may have been deleted while no renderer ran.
func content() builder.Predicates {
	generation := predicate.GenerationChangedPredicate{}
	changed := predicate.Or(generation, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	return builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !api.IsResult(e.Object.GetName()) || e.IsInInitialList },
		UpdateFunc: func(e event.UpdateEvent) bool {
			if api.IsResult(e.ObjectNew.GetName()) {
				return generation.Update(e)
			}
			return changed.Update(e)
		},
	})
}

// everyPool returns a request for each pool, or only for that of a result. A MachineConfig that was changed may have
// been selected before its change, so all pools look; one with the same MachineConfigs does nothing.
func (r *renderer) everyPool(ctx context.Context, about client.Object) []reconcile.Request {
	if pool := renderedFor(about); pool != "" {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: pool}}}
	}
	var list api.MachineConfigPoolList
	if err := r.cached.List(ctx, &list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list the pools")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}
