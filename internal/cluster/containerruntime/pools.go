package containerruntime

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Selector is a label selector. All of it must match; an empty one matches nothing.
type Selector struct{ metav1.LabelSelector }

// Matches reports whether the selector matches labels.
func (s Selector) Matches(of map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(&s.LabelSelector)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(of))
}

// Assigned is the ContainerRuntimeConfigs of one pool, in input order.
type Assigned struct {
	Pool    string
	Configs []Config
}

// Assign assigns ContainerRuntimeConfigs to pools. Without pools, all are assigned to the role.
// With pools, their labels decide, and a non-empty role restricts the result to the pool of that
// name.
func (all Objects) Assign(role string) ([]Assigned, error) {
	if len(all.Pools) == 0 {
		return []Assigned{{role, all.Configs}}, nil
	}
	var problems []error
	byPool := map[string][]Config{}
	for _, c := range all.Configs {
		found := false
		for _, p := range all.Pools {
			if c.Selector.Matches(p.Labels) {
				byPool[p.Name], found = append(byPool[p.Name], c), true
			}
		}
		if !found {
			problems = append(problems, fmt.Errorf("could not find any MachineConfigPool set for %s %s", c.kind, c.Name))
		}
	}
	var assigned []Assigned
	for _, pool := range slices.Sorted(maps.Keys(byPool)) {
		if role == "" || role == pool {
			assigned = append(assigned, Assigned{pool, byPool[pool]})
		}
	}
	return assigned, errors.Join(problems...)
}
