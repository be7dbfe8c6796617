package containerruntime

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/problem"
)

// SortByAge puts ContainerRuntimeConfigs in the order in which they get their numbers: by age.
func SortByAge(all []api.ContainerRuntimeConfig) {
	slices.SortFunc(all, func(a, b api.ContainerRuntimeConfig) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// ClusterConfig is a ContainerRuntimeConfig of a cluster, and the pools for which it is rendered. Numbers and errors are
// the operator's.
type ClusterConfig struct {
	Object *api.ContainerRuntimeConfig
	Pools  []string // that it selects
	Wrong  error    // why it cannot be rendered, whatever happens to other objects
	Notes  []string // warnings

	decoded Config
}

// NewClusterConfig decodes a ContainerRuntimeConfig and finds its pools.
func NewClusterConfig(o *api.ContainerRuntimeConfig, all []api.MachineConfigPool) *ClusterConfig {
	s := &ClusterConfig{Object: o}
	o.TypeMeta = metav1.TypeMeta{APIVersion: machineconfig.APIVersion, Kind: Kind}
	text, err := json.Marshal(o)
	if err != nil {
		s.Wrong = err
		return s
	}
	found, report := Decode("", text)
	var wrong []string
	for _, p := range report {
		if p.Severity == problem.Error {
			wrong = append(wrong, p.Text())
		} else {
			s.Notes = append(s.Notes, p.Text())
		}
	}
	if len(wrong) > 0 {
		s.Wrong = fault.New(fault.BadInput, "%s", strings.Join(wrong, "; "))
	}
	if s.Wrong == nil && len(found.Configs) == 1 {
		s.decoded = found.Configs[0]
		s.Pools, s.Wrong = selected(s.decoded, all)
	}
	return s
}

// selected returns the names of the pools that a ContainerRuntimeConfig selects, sorted. The error is in the
// operator's words.
func selected(c Config, all []api.MachineConfigPool) ([]string, error) {
	if len(all) == 0 { // for Assign, no pools means that there is no cluster
		return nil, fault.New(fault.BadInput, "could not find any MachineConfigPool set for ContainerRuntimeConfig %s", c.Name)
	}
	found := Objects{Configs: []Config{c}}
	for _, p := range all {
		if p.DeletionTimestamp == nil {
			found.Pools = append(found.Pools, Pool{Name: p.Name, Labels: p.Labels})
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

// SelectsNone reports whether a ContainerRuntimeConfig is valid, and no pool matches: then what it has generated
// for pools that matched before must go.
func (s *ClusterConfig) SelectsNone() bool { return s.decoded.Name != "" && len(s.Pools) == 0 }

// Number gives a ContainerRuntimeConfig that has none its number, as an annotation of its object, and reports
// whether it has: then the object is to be decoded again. The number stays, and is higher than those of all others
// of its pools, so that the newest one overrides them.
func (s *ClusterConfig) Number(all []*ClusterConfig) (changed bool, err error) {
	if _, has := s.Object.Annotations[suffixAnnotation]; has {
		return false, nil
	}
	n := s.nextNumber(all)
	if n > maxSuffix {
		return false, fault.New(fault.BadInput, "max number of supported ctrcfgs (%d) has been reached. Please delete old ctrcfgs before retrying", maxSuffix+1)
	}
	if s.Object.Annotations == nil {
		s.Object.Annotations = map[string]string{}
	}
	s.Object.Annotations[suffixAnnotation] = suffix(n)
	return true, nil
}

// Again decodes the object once more, after a change of its annotations, and keeps the warnings.
func (s *ClusterConfig) Again(pools []api.MachineConfigPool) error {
	notes := s.Notes
	*s = *NewClusterConfig(s.Object, pools)
	s.Notes = notes
	return s.Wrong
}

// suffix returns the value of the annotation for a number.
func suffix(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// nextNumber returns the number after the highest one in the pools of a ContainerRuntimeConfig. A number that is refused,
// such as 10, has no effect on others.
func (s *ClusterConfig) nextNumber(all []*ClusterConfig) int {
	next := 0
	for _, other := range all {
		value, has := other.Object.Annotations[suffixAnnotation]
		n, err := strconv.Atoi("0" + value)
		shares := slices.ContainsFunc(other.Pools, func(pool string) bool { return slices.Contains(s.Pools, pool) })
		if has && err == nil && shares && n <= maxSuffix {
			next = max(next, n+1)
		}
	}
	return next
}

// Generator generates MachineConfigs, each name once.
type Generator struct {
	// Base returns the files of a pool that settings may change: see BaseFiles.
	Base func(pool string) (map[string][]byte, error)

	taken map[string]string // ContainerRuntimeConfigs by the names of their MachineConfigs
}

// MachineConfigs returns the MachineConfigs of a ContainerRuntimeConfig that has a number. One that is refused takes no name
// from another one.
func (g *Generator) MachineConfigs(s *ClusterConfig) ([]authored.Manifest, error) {
	var all []authored.Manifest
	for _, pool := range s.Pools {
		files, err := g.Base(pool)
		if err != nil && s.decoded.Settings.OverlaySize != nil {
			return nil, fmt.Errorf("cannot read %s of the pool %s: %w", StoragePath, pool, err)
		}
		rendered, err := Assigned{Pool: pool, Configs: []Config{s.decoded}}.Render(files)
		if err != nil {
			return nil, fault.New(fault.BadInput, "%w", err)
		}
		s.Notes = append(s.Notes, rendered.Warnings...)
		for _, m := range rendered.Manifests {
			if err := g.check(m); err != nil {
				return nil, err
			}
			all = append(all, m)
		}
	}
	if g.taken == nil {
		g.taken = map[string]string{}
	}
	for _, m := range all {
		g.taken[m.Name] = s.Object.Name
	}
	return all, nil
}

// check checks a MachineConfig, and that no other ContainerRuntimeConfig has its name.
func (g *Generator) check(m authored.Manifest) error {
	if err := m.Check(); err != nil {
		return fault.New(fault.BadInput, "%w", err)
	}
	if other, again := g.taken[m.Name]; again {
		return fault.New(fault.BadInput, "its MachineConfig %s is that of the ContainerRuntimeConfig %s, too; remove the annotation %s to get another number", m.Name, other, suffixAnnotation)
	}
	return nil
}

// BaseFiles returns the files that settings may change, from all self-contained MachineConfigs of a pool but those that are
// generated for the pool itself. What they have replaced must not count as the pool's own.
func BaseFiles(whole []*authored.MachineConfig) (map[string][]byte, error) {
	files := map[string][]byte{}
	if len(whole) == 0 {
		return files, nil
	}
	merged, err := authored.Merge(whole, authored.Images{})
	if err != nil {
		return nil, err
	}
	return files, merged.AddFiles(files, Changes)
}
