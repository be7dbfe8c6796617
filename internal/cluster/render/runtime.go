package render

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/containerruntime"
)

// reconcileRuntime makes MachineConfigs of all ContainerRuntimeConfigs. It looks at all of them at once, because
// their numbers depend on one another.
func (r *renderer) reconcileRuntime(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var list api.ContainerRuntimeConfigList
	var pools api.MachineConfigPoolList
	if err := errors.Join(r.cached.List(ctx, &list), r.cached.List(ctx, &pools)); err != nil {
		return reconcile.Result{}, err
	}
	containerruntime.SortByAge(list.Items)
	g := generator{renderer: r, pools: pools.Items, files: map[string]base{}}
	g.Base = func(pool string) (map[string][]byte, error) { return g.base(ctx, pool) }
	var failed []error
	for i := range list.Items {
		o := &list.Items[i]
		if o.DeletionTimestamp != nil {
			failed = append(failed, r.finish(ctx, o))
			continue
		}
		g.configs = append(g.configs, containerruntime.NewClusterConfig(o, pools.Items))
	}
	for _, s := range g.configs {
		failed = append(failed, g.generate(ctx, s))
	}
	return reconcile.Result{}, errors.Join(failed...)
}

// finish deletes what was generated from a ContainerRuntimeConfig that is being deleted, and lets it go. It asks
// the API server, because a cache may not have what was created last.
func (r *renderer) finish(ctx context.Context, o *api.ContainerRuntimeConfig) error {
	if !controllerutil.ContainsFinalizer(o, api.GeneratedFinalizer) {
		return nil
	}
	if err := r.removeGenerated(ctx, r.direct, o, nil); err != nil {
		return err
	}
	before := o.DeepCopyObject().(*api.ContainerRuntimeConfig)
	controllerutil.RemoveFinalizer(o, api.GeneratedFinalizer)
	return client.IgnoreNotFound(r.patch(ctx, o, before))
}

// removeGenerated deletes the MachineConfigs that were generated from a ContainerRuntimeConfig, except some.
func (r *renderer) removeGenerated(ctx context.Context, from client.Reader, o *api.ContainerRuntimeConfig, except []string) error {
	list := metadata()
	if err := from.List(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		mc := &list.Items[i]
		if metav1.IsControlledBy(mc, o) && !slices.Contains(except, mc.Name) {
			if err := r.remove(ctx, mc); err != nil {
				return err
			}
		}
	}
	return nil
}

// patch changes the metadata of a ContainerRuntimeConfig. It fails if the object has changed since it was read.
func (r *renderer) patch(ctx context.Context, o, before *api.ContainerRuntimeConfig) error {
	if err := r.cached.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("cannot update the ContainerRuntimeConfig %s: %w", o.Name, err)
	}
	return nil
}
