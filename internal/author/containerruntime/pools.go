package containerruntime

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Selector is a label selector: all of it must match. An empty one selects nothing.
type Selector struct {
	Labels      map[string]string
	Expressions []Requirement
}

// Requirement is one expression of a selector.
type Requirement struct {
	Key      string
	Operator string // In, NotIn, Exists, DoesNotExist
	Values   []string
}

// matches reports whether the labels are selected.
func (s Selector) matches(labels map[string]string) bool {
	for key, want := range s.Labels {
		if value, ok := labels[key]; !ok || value != want {
			return false
		}
	}
	for _, r := range s.Expressions {
		value, ok := labels[r.Key]
		listed := ok && slices.Contains(r.Values, value)
		if !map[string]bool{"In": listed, "NotIn": !listed, "Exists": ok, "DoesNotExist": !ok}[r.Operator] {
			return false
		}
	}
	return len(s.Labels)+len(s.Expressions) > 0
}

// Assigned are the ContainerRuntimeConfigs of one pool, in their order.
type Assigned struct {
	Pool    string
	Configs []Config
}

// Assign finds the pools that each ContainerRuntimeConfig is for. Without any
// pool given all are for the role; with pools their labels decide, and a role
// that is given leaves only its pool.
func (all Objects) Assign(role string) ([]Assigned, error) {
	if len(all.Pools) == 0 {
		return []Assigned{{role, all.Configs}}, nil
	}
	var problems []error
	byPool := map[string][]Config{}
	for _, c := range all.Configs {
		found := false
		for _, p := range all.Pools {
			if c.Selector.matches(p.Labels) {
				byPool[p.Name], found = append(byPool[p.Name], c), true
			}
		}
		if !found {
			problems = append(problems, fmt.Errorf("could not find any MachineConfigPool set for ContainerRuntimeConfig %s", c.Name))
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
