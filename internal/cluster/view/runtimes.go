package view

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/containerruntime"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/problem"
)

// settings generates the MachineConfigs of ContainerRuntimeConfigs in place of those that the cluster has of them,
// as the renderer will.
type settings struct {
	Planner
	pools    []api.MachineConfigPool
	existing map[string]object          // MachineConfigs
	all      []*authored.MachineConfig  // of the cluster and proposed
	proposed map[string]bool            // ContainerRuntimeConfigs
	bases    map[string]map[string]file // nil until they are read
	report   problem.Report
}

// file is the content of a file.
type file = []byte

// withSettings returns all MachineConfigs with those that ContainerRuntimeConfigs become. The cluster's own are read,
// too: they take numbers, and what is generated from them may change with a proposed MachineConfig. Who may not read
// them sees what was generated from them before.
func (p Planner) withSettings(ctx context.Context, f Facts, in overlay, proposed []api.ContainerRuntimeConfig, missing *[]string) ([]*authored.MachineConfig, problem.Report, error) {
	read, err := list[api.ContainerRuntimeConfig](ctx, p.Client, ctrcfgsPath, "")
	switch {
	case errors.Is(err, errAbsent):
	case fault.KindOf(err) == fault.Refused && len(proposed) == 0:
		*missing = append(*missing, "ContainerRuntimeConfigs: "+err.Error())
	case err != nil:
		return nil, nil, err
	}
	s := settings{Planner: p, pools: f.Pools, existing: in.existing, all: in.all, proposed: map[string]bool{}, bases: map[string]map[string]file{}}
	s.generate(ctx, s.overlaid(read, proposed, f))
	return s.all, s.report, nil
}

// overlaid returns the ContainerRuntimeConfigs of the cluster as they would be with the proposed ones.
func (s *settings) overlaid(read, proposed []api.ContainerRuntimeConfig, f Facts) []api.ContainerRuntimeConfig {
	all := slices.DeleteFunc(slices.Clone(read), func(o api.ContainerRuntimeConfig) bool { return o.DeletionTimestamp != nil })
	for _, o := range proposed {
		s.proposed[o.Name] = true
		i := slices.IndexFunc(all, func(old api.ContainerRuntimeConfig) bool { return old.Name == o.Name })
		if i < 0 {
			o.CreationTimestamp = metav1.Time{Time: f.Now}
			all = append(all, o)
			continue
		}
		all[i].Spec, all[i].Annotations = o.Spec, maps.Clone(all[i].Annotations)
		if all[i].Annotations == nil {
			all[i].Annotations = map[string]string{}
		}
		maps.Copy(all[i].Annotations, o.Annotations)
	}
	containerruntime.SortByAge(all)
	return all
}

// generate puts the MachineConfigs of ContainerRuntimeConfigs in place. What cannot be generated stays as it is.
func (s *settings) generate(ctx context.Context, of []api.ContainerRuntimeConfig) {
	var configs []*containerruntime.ClusterConfig
	for i := range of {
		configs = append(configs, containerruntime.NewClusterConfig(&of[i], s.pools))
	}
	g := containerruntime.Generator{Base: func(pool string) (map[string][]byte, error) { return s.base(ctx, pool) }}
	for _, c := range configs {
		wrong := c.Wrong
		if wrong == nil {
			wrong = s.one(&g, c, configs)
		}
		if c.SelectsNone() {
			s.replace(c.Object, nil)
		}
		s.say(c, wrong)
	}
}

// one generates the MachineConfigs of one ContainerRuntimeConfig.
func (s *settings) one(g *containerruntime.Generator, c *containerruntime.ClusterConfig, all []*containerruntime.ClusterConfig) error {
	numbered, err := c.Number(all)
	if err == nil && numbered {
		err = c.Again(s.pools)
	}
	if err != nil {
		return err
	}
	manifests, err := g.MachineConfigs(c)
	if err != nil {
		return err
	}
	var made []*authored.MachineConfig
	for _, m := range manifests {
		text, err := m.JSON()
		if err != nil {
			return err
		}
		if other, there := s.existing[m.Name]; there && !other.isOf(c.Object) {
			return fault.New(fault.BadInput, "there is a MachineConfig %s that was not generated from this ContainerRuntimeConfig; it is not overwritten", m.Name)
		}
		found, report := authored.Decode("generated from the ContainerRuntimeConfig "+c.Object.Name, text, s.Renderer.Rules)
		made, s.report = append(made, found...), append(s.report, report...)
	}
	s.replace(c.Object, made)
	return nil
}

// replace removes what was generated from a ContainerRuntimeConfig, and adds what is generated now.
func (s *settings) replace(o *api.ContainerRuntimeConfig, made []*authored.MachineConfig) {
	s.all = slices.DeleteFunc(s.all, func(mc *authored.MachineConfig) bool { return s.existing[mc.Name].isOf(o) })
	s.all = append(s.all, made...)
}

// say reports what is wrong with a ContainerRuntimeConfig. For one of the cluster it is a warning: the renderer keeps
// what was generated from it.
func (s *settings) say(c *containerruntime.ClusterConfig, wrong error) {
	where := "ContainerRuntimeConfig " + c.Object.Name
	add := func(p problem.Problem) {
		p.File = where
		s.report.Add(p)
	}
	switch {
	case wrong == nil:
	case s.proposed[c.Object.Name]:
		add(problem.Errorf("$", "%v", wrong))
	default:
		add(problem.Warningf("$", "what was generated from it before stays: %v", wrong))
	}
	for _, note := range c.Notes {
		add(problem.Warningf("$", "%s", note))
	}
}

// base returns the files of a pool that settings may change.
func (s *settings) base(ctx context.Context, pool string) (map[string]file, error) {
	if files := s.bases[pool]; files != nil {
		return files, nil
	}
	i := slices.IndexFunc(s.pools, func(p api.MachineConfigPool) bool { return p.Name == pool })
	var chosen []*authored.MachineConfig
	for _, mc := range s.all {
		isGenerated := s.existing[mc.Name].owner.Kind == containerruntime.Kind && mc.Labels[authored.RoleLabel] == pool
		if api.Selects(s.pools[i].Spec.MachineConfigSelector, mc.Labels) && !isGenerated {
			chosen = append(chosen, mc)
		}
	}
	whole, report, err := s.Renderer.Inline(ctx, chosen)
	if err != nil || report.Failed() {
		return nil, errors.Join(err, report.Err("the MachineConfigs of the pool"))
	}
	files, err := containerruntime.BaseFiles(whole)
	if err != nil {
		return nil, fmt.Errorf("the pool %s: %w", pool, err)
	}
	s.bases[pool] = files
	return files, nil
}
