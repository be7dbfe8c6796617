package render

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/containerruntime"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/objects"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/spec"
	"machine-pivot/internal/problem"
)

// reconcileRuntime makes MachineConfigs of all ContainerRuntimeConfigs. It looks at all of them at once, because
// their numbers depend on one another.
func (r *renderer) reconcileRuntime(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var list objects.ContainerRuntimeConfigList
	var pools objects.MachineConfigPoolList
	if err := errors.Join(r.cached.List(ctx, &list), r.cached.List(ctx, &pools)); err != nil {
		return reconcile.Result{}, err
	}
	slices.SortFunc(list.Items, func(a, b objects.ContainerRuntimeConfig) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	g := generator{renderer: r, pools: pools.Items, taken: map[string]string{}, files: map[string]base{}}
	var failed []error
	for i := range list.Items {
		o := &list.Items[i]
		if o.DeletionTimestamp != nil {
			failed = append(failed, r.finish(ctx, o))
			continue
		}
		g.configs = append(g.configs, newSettings(o, pools.Items))
	}
	for _, s := range g.configs {
		failed = append(failed, g.settle(ctx, s))
	}
	if err := errors.Join(failed...); err != nil {
		if conflict(err) {
			return reconcile.Result{RequeueAfter: firstRetry}, nil
		}
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, nil
}

// finish deletes what was generated from a ContainerRuntimeConfig that is being deleted, and lets it go. It asks
// the API server, because a cache may not have what was created last.
func (r *renderer) finish(ctx context.Context, o *objects.ContainerRuntimeConfig) error {
	if !controllerutil.ContainsFinalizer(o, api.GeneratedFinalizer) {
		return nil
	}
	if err := r.removeGenerated(ctx, r.direct, o, nil); err != nil {
		return err
	}
	before := o.DeepCopyObject().(*objects.ContainerRuntimeConfig)
	controllerutil.RemoveFinalizer(o, api.GeneratedFinalizer)
	return client.IgnoreNotFound(r.patch(ctx, o, before))
}

// removeGenerated deletes the MachineConfigs that were generated from a ContainerRuntimeConfig, except some.
func (r *renderer) removeGenerated(ctx context.Context, from client.Reader, o *objects.ContainerRuntimeConfig, except []string) error {
	list := metadataOf(spec.Kind)
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
func (r *renderer) patch(ctx context.Context, o, before *objects.ContainerRuntimeConfig) error {
	if err := r.cached.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("cannot update the ContainerRuntimeConfig %s: %w", o.Name, err)
	}
	return nil
}

// settings are a ContainerRuntimeConfig.
type settings struct {
	object  *objects.ContainerRuntimeConfig
	decoded containerruntime.Config
	pools   []string // that it selects
	wrong   error    // why it cannot be rendered, whatever happens to other objects
	notes   []string // warnings
}

// newSettings decodes a ContainerRuntimeConfig and finds its pools.
func newSettings(o *objects.ContainerRuntimeConfig, all []objects.MachineConfigPool) *settings {
	s := &settings{object: o}
	o.TypeMeta = metav1.TypeMeta{APIVersion: spec.APIVersion, Kind: kindRuntime}
	text, err := json.Marshal(o)
	if err != nil {
		s.wrong = err
		return s
	}
	found, report := containerruntime.Decode("", text)
	var wrong []string
	for _, p := range report {
		if p.Severity == problem.Error {
			wrong = append(wrong, p.Text())
		} else {
			s.notes = append(s.notes, p.Text())
		}
	}
	if len(wrong) > 0 {
		s.wrong = fault.New(fault.BadInput, "%s", strings.Join(wrong, "; "))
	}
	if s.wrong == nil && len(found.Configs) == 1 {
		s.decoded = found.Configs[0]
		s.pools, s.wrong = selected(s.decoded, all)
	}
	return s
}

// selected returns the names of the pools that a ContainerRuntimeConfig selects, sorted. The error is in the
// operator's words.
func selected(c containerruntime.Config, all []objects.MachineConfigPool) ([]string, error) {
	if len(all) == 0 { // for Assign, no pools means that there is no cluster
		return nil, fault.New(fault.BadInput, "could not find any MachineConfigPool set for ContainerRuntimeConfig %s", c.Name)
	}
	found := containerruntime.Objects{Configs: []containerruntime.Config{c}}
	for _, p := range all {
		if p.DeletionTimestamp == nil {
			found.Pools = append(found.Pools, containerruntime.Pool{Name: p.Name, Labels: p.Labels})
		}
	}
	assigned, err := found.Assign("")
	var names []string
	for _, a := range assigned {
		names = append(names, a.Pool)
	}
	if err != nil {
		return names, fault.New(fault.BadInput, "%w", err)
	}
	return names, nil
}

// wants are the MachineConfigs of a ContainerRuntimeConfig.
func (g *generator) wants(ctx context.Context, s *settings) ([]authored.Manifest, error) {
	var all []authored.Manifest
	for _, pool := range s.pools {
		base := g.base(ctx, pool)
		if base.err != nil && s.decoded.Settings.OverlaySize != nil {
			return nil, fmt.Errorf("cannot read %s of the pool %s: %w", containerruntime.StoragePath, pool, base.err)
		}
		rendered, err := containerruntime.Assigned{Pool: pool, Configs: []containerruntime.Config{s.decoded}}.Render(base.files)
		if err != nil {
			return nil, fault.New(fault.BadInput, "%w", err)
		}
		s.notes = append(s.notes, rendered.Warnings...)
		for _, m := range rendered.Manifests {
			if err := m.Check(); err != nil {
				return nil, fault.New(fault.BadInput, "%w", err)
			}
			if other, again := g.taken[m.Name]; again {
				return nil, fault.New(fault.BadInput, "its MachineConfig %s is that of the ContainerRuntimeConfig %s, too; remove the annotation %s to get another number", m.Name, other, containerruntime.SuffixAnnotation)
			}
			g.taken[m.Name] = s.object.Name
			all = append(all, m)
		}
	}
	return all, nil
}
