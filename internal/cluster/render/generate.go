package render

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/containerruntime"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/problem"
)

// generator makes MachineConfigs of ContainerRuntimeConfigs.
type generator struct {
	*renderer
	containerruntime.Generator
	pools   []api.MachineConfigPool
	configs []*containerruntime.ClusterConfig
	files   map[string]base // by pool
}

// base is the files of a pool that settings may change.
type base struct {
	files map[string][]byte
	err   error
}

// generate brings the MachineConfigs of a ContainerRuntimeConfig up to date and writes its status. If it cannot be
// rendered, those that it has stay as they are.
func (g *generator) generate(ctx context.Context, s *containerruntime.ClusterConfig) error {
	wrong := s.Wrong
	if wrong == nil {
		wrong = g.number(ctx, s)
	}
	var names []string
	if wrong == nil {
		names, wrong = g.write(ctx, s)
	}
	if wrong == nil || s.SelectsNone() {
		wrong = errors.Join(wrong, g.removeGenerated(ctx, g.cached, s.Object, names))
	}
	if wrong == nil {
		wrong = g.unselected(s)
	}
	if conflict(wrong) {
		return wrong
	}
	if err := g.status(ctx, s, wrong); err != nil {
		return err
	}
	if fault.KindOf(wrong) == fault.BadInput {
		return nil // it is looked at again when something changes
	}
	return wrong
}

// unselected returns an error if a pool does not select what is generated for it: no machine gets that.
func (g *generator) unselected(s *containerruntime.ClusterConfig) error {
	var names []string
	for i := range g.pools {
		p := &g.pools[i]
		selector, err := metav1.LabelSelectorAsSelector(p.Spec.MachineConfigSelector)
		if slices.Contains(s.Pools, p.Name) && (err != nil || !selector.Matches(labels.Set{authored.RoleLabel: p.Name})) {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return fault.New(fault.BadInput, "the pools %s do not select what is generated for them, with the pool's name in the label %s; correct their machineConfigSelector", strings.Join(names, ", "), authored.RoleLabel)
}

// number gives a ContainerRuntimeConfig its number and the finalizer.
func (g *generator) number(ctx context.Context, s *containerruntime.ClusterConfig) error {
	before := s.Object.DeepCopyObject().(*api.ContainerRuntimeConfig)
	changed := controllerutil.AddFinalizer(s.Object, api.GeneratedFinalizer)
	numbered, err := s.Number(g.configs)
	if err != nil || !changed && !numbered {
		return err
	}
	if err := g.patch(ctx, s.Object, before); err != nil {
		return err
	}
	return s.Again(g.pools)
}

// write creates or updates the MachineConfigs of a ContainerRuntimeConfig, and returns their names.
func (g *generator) write(ctx context.Context, s *containerruntime.ClusterConfig) ([]string, error) {
	wanted, err := g.MachineConfigs(s)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range wanted {
		if err := g.apply(ctx, s.Object, m); err != nil {
			return nil, err
		}
		names = append(names, m.Name)
	}
	return names, nil
}

// apply creates a MachineConfig, or replaces its spec. One that a person has made is not touched.
func (g *generator) apply(ctx context.Context, o *api.ContainerRuntimeConfig, m authored.Manifest) error {
	text, err := m.JSON()
	if err != nil {
		return err
	}
	made := &api.MachineConfig{}
	if err := json.Unmarshal(text, made); err != nil {
		return err
	}
	made.Annotations = map[string]string{machineconfig.GeneratedBy: g.Version}
	made.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o, api.Operator().WithKind(containerruntime.Kind))}
	existing := &api.MachineConfig{}
	err = g.direct.Get(ctx, client.ObjectKey{Name: made.Name}, existing)
	switch {
	case apierrors.IsNotFound(err):
		return g.create(ctx, made)
	case err != nil:
		return err
	case !metav1.IsControlledBy(existing, o):
		return fault.New(fault.BadInput, "there is a MachineConfig %s that was not generated from this ContainerRuntimeConfig; it is not overwritten", made.Name)
	case sameSpec(existing.Spec.Raw, made.Spec.Raw) && existing.Labels[authored.RoleLabel] == m.Role:
		return nil
	}
	changes, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": existing.ResourceVersion},
		{"op": "add", "path": "/metadata/labels", "value": made.Labels},
		{"op": "replace", "path": "/spec", "value": made.Spec},
	})
	if err != nil {
		return err
	}
	if err := g.cached.Patch(ctx, existing, client.RawPatch(types.JSONPatchType, changes)); err != nil {
		return fmt.Errorf("cannot update the MachineConfig %s: %w", made.Name, err)
	}
	return nil
}

// status writes the condition Success or Failure, if it changes. There is one condition, the newest.
func (g *generator) status(ctx context.Context, s *containerruntime.ClusterConfig, wrong error) error {
	kind, text := api.ConfigSuccess, "Success"
	if wrong != nil {
		kind, text = api.ConfigFailure, "Error: "+problem.OneLine(wrong.Error())
	}
	if len(s.Notes) > 0 {
		slices.Sort(s.Notes)
		text += "; warnings: " + strings.Join(slices.Compact(s.Notes), "; ")
	}
	text = bounded(text, maxMessage)
	o := s.Object
	conditions := slices.DeleteFunc(slices.Clone(o.Status.Conditions), func(c metav1.Condition) bool { return c.Type != kind })
	set(&conditions, kind, verdict{api.True, kind, text}, g.now())
	old := o.Status
	if len(old.Conditions) == 1 && old.Conditions[0] == conditions[0] && old.ObservedGeneration == o.Generation {
		return nil
	}
	before := o.DeepCopyObject().(*api.ContainerRuntimeConfig)
	o.Status = api.ContainerRuntimeConfigStatus{ObservedGeneration: o.Generation, Conditions: conditions}
	err := g.cached.Status().Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("cannot write the status of the ContainerRuntimeConfig %s: %w", o.Name, err)
	}
	return nil
}

// base returns the files of a pool that settings may change, and remembers them.
func (g *generator) base(ctx context.Context, pool string) (map[string][]byte, error) {
	known, ok := g.files[pool]
	if !ok {
		known.files, known.err = g.readBase(ctx, pool)
		g.files[pool] = known
	}
	return known.files, known.err
}

func (g *generator) readBase(ctx context.Context, pool string) (map[string][]byte, error) {
	i := slices.IndexFunc(g.pools, func(p api.MachineConfigPool) bool { return p.Name == pool })
	all, report, err := g.sources(ctx, &g.pools[i])
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s source) bool {
		owner := metav1.GetControllerOf(s.object)
		return owner != nil && owner.Kind == containerruntime.Kind && s.object.Labels[authored.RoleLabel] == pool
	})
	whole, problems, err := g.complete(ctx, all)
	if report = append(report, problems...); err != nil || report.Failed() {
		return nil, errors.Join(err, report.Err("the MachineConfigs of the pool"))
	}
	return containerruntime.BaseFiles(whole)
}
