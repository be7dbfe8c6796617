package render

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/containerruntime"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/objects"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/machineconfig/spec"
	"machine-pivot/internal/problem"
)

// generator makes MachineConfigs of ContainerRuntimeConfigs.
type generator struct {
	*renderer
	pools   []objects.MachineConfigPool
	configs []*settings
	taken   map[string]string // ContainerRuntimeConfigs by the names of their MachineConfigs
	files   map[string]base   // by pool
}

// base is the files of a pool that settings may change.
type base struct {
	files map[string][]byte
	err   error
}

// settle brings the MachineConfigs of a ContainerRuntimeConfig up to date and writes its status. If it cannot be
// rendered, those that it has stay as they are.
func (g *generator) settle(ctx context.Context, s *settings) error {
	wrong := s.wrong
	if wrong == nil {
		wrong = g.number(ctx, s)
	}
	var names []string
	if wrong == nil {
		names, wrong = g.write(ctx, s)
	}
	if wrong == nil || s.selectsNone() {
		wrong = errors.Join(wrong, g.removeGenerated(ctx, g.cached, s.object, names))
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

// selectsNone reports whether a ContainerRuntimeConfig is valid, and no pool matches: then what it has generated
// for pools that matched before must go.
func (s *settings) selectsNone() bool { return s.decoded.Name != "" && len(s.pools) == 0 }

// number gives a ContainerRuntimeConfig its number, which stays, and the finalizer. The number is higher than
// those of all others of its pools, so that the newest one overrides them.
func (g *generator) number(ctx context.Context, s *settings) error {
	before := s.object.DeepCopyObject().(*objects.ContainerRuntimeConfig)
	changed := controllerutil.AddFinalizer(s.object, api.GeneratedFinalizer)
	if _, has := s.object.Annotations[containerruntime.SuffixAnnotation]; !has {
		n := nextNumber(s, g.configs)
		if n > containerruntime.MaxSuffix {
			return fault.New(fault.BadInput, "max number of supported ctrcfgs (%d) has been reached. Please delete old ctrcfgs before retrying", containerruntime.MaxSuffix+1)
		}
		if s.object.Annotations == nil {
			s.object.Annotations = map[string]string{}
		}
		s.object.Annotations[containerruntime.SuffixAnnotation] = suffix(n)
		changed = true
	}
	if !changed {
		return nil
	}
	if err := g.patch(ctx, s.object, before); err != nil {
		return err
	}
	notes := s.notes
	*s = *newSettings(s.object, g.pools) // its number is part of what is decoded
	s.notes = notes
	return s.wrong
}

// suffix returns the value of the annotation for a number.
func suffix(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// nextNumber returns the number after the highest one in the pools of a ContainerRuntimeConfig.
func nextNumber(s *settings, all []*settings) int {
	next := 0
	for _, other := range all {
		value, has := other.object.Annotations[containerruntime.SuffixAnnotation]
		n, err := strconv.Atoi("0" + value)
		shares := slices.ContainsFunc(other.pools, func(pool string) bool { return slices.Contains(s.pools, pool) })
		if has && err == nil && shares {
			next = max(next, n+1)
		}
	}
	return next
}

// write creates or updates the MachineConfigs of a ContainerRuntimeConfig, and returns their names.
func (g *generator) write(ctx context.Context, s *settings) ([]string, error) {
	wanted, err := g.wants(ctx, s)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range wanted {
		if err := g.apply(ctx, s.object, m); err != nil {
			return nil, err
		}
		names = append(names, m.Name)
	}
	return names, nil
}

// apply creates a MachineConfig, or replaces its spec. One that a person has made is not touched.
func (g *generator) apply(ctx context.Context, o *objects.ContainerRuntimeConfig, m authored.Manifest) error {
	text, err := m.JSON()
	if err != nil {
		return err
	}
	made := &objects.MachineConfig{}
	if err := json.Unmarshal(text, made); err != nil {
		return err
	}
	made.Annotations = map[string]string{spec.GeneratedBy: g.Version}
	made.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o, objects.Operator().WithKind(kindRuntime))}
	existing := &objects.MachineConfig{}
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
func (g *generator) status(ctx context.Context, s *settings, wrong error) error {
	kind, text := objects.ConfigSuccess, "Success"
	if wrong != nil {
		kind, text = objects.ConfigFailure, "Error: "+problem.OneLine(wrong.Error())
	}
	if len(s.notes) > 0 {
		slices.Sort(s.notes)
		text += "; warnings: " + strings.Join(slices.Compact(s.notes), "; ")
	}
	text = bounded(text, maxMessage)
	o := s.object
	same := slices.DeleteFunc(slices.Clone(o.Status.Conditions), func(c objects.PoolCondition) bool { return c.Type != kind })
	conditions, _ := set(same, kind, verdict{api.True, kind, text}, g.now())
	old := o.Status
	if len(old.Conditions) == 1 && old.Conditions[0] == conditions[0] && old.ObservedGeneration == o.Generation {
		return nil
	}
	before := o.DeepCopyObject().(*objects.ContainerRuntimeConfig)
	o.Status = objects.ContainerRuntimeConfigStatus{ObservedGeneration: o.Generation, Conditions: conditions}
	err := g.cached.Status().Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("cannot write the status of the ContainerRuntimeConfig %s: %w", o.Name, err)
	}
	return nil
}

// base returns the files of a pool that settings may change, from all of its MachineConfigs but those that are
// generated for the pool itself: what they have replaced must not count as the pool's own.
func (g *generator) base(ctx context.Context, pool string) base {
	if known, ok := g.files[pool]; ok {
		return known
	}
	files, err := g.readBase(ctx, pool)
	g.files[pool] = base{files, err}
	return g.files[pool]
}

func (g *generator) readBase(ctx context.Context, pool string) (map[string][]byte, error) {
	i := slices.IndexFunc(g.pools, func(p objects.MachineConfigPool) bool { return p.Name == pool })
	all, report, err := g.sources(ctx, &g.pools[i])
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s source) bool {
		owner := metav1.GetControllerOf(s.object)
		return owner != nil && owner.Kind == kindRuntime && s.object.Labels[authored.RoleLabel] == pool
	})
	whole, problems, err := g.complete(ctx, all)
	if report = append(report, problems...); err != nil || report.Failed() {
		return nil, errors.Join(err, report.Err("the MachineConfigs of the pool"))
	}
	files := map[string][]byte{}
	if len(whole) == 0 {
		return files, nil
	}
	merged, err := authored.Merge(whole, authored.Images{})
	if err != nil {
		return nil, err
	}
	room := authored.NewRoom()
	for _, f := range merged.Spec.Config.Storage.Files {
		if !containerruntime.Changes(f.Path) {
			continue
		}
		if files[f.Path], err = ignition.Content(f.Contents, room); err != nil {
			return nil, fault.New(fault.BadInput, "cannot read %s: %w", f.Path, err)
		}
	}
	return files, nil
}
