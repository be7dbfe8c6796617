package node

import (
	"maps"
	"slices"
	"strings"
)

// WorkloadCores follows the workload type in the name of its resource.
const WorkloadCores = ".workload.openshift.io/cores"

// Resources are what a Keeper uses of a Node object.
type Resources struct {
	Name, UID string
	// Config is the MachineConfig that the node has. With another one, its workload types may be others.
	Config string
	// CPUs is the capacity of CPUs that kubelet has reported, in thousandths; 0: it has not.
	CPUs int64
	// Advertised are the workload types with a resource that the node has because of the agent.
	Advertised []string
	// Capacity and Allocatable are the amounts of the resources of all workload types, by type.
	Capacity, Allocatable map[string]int64
}

// ResourcesPatch is a change of them.
type ResourcesPatch struct {
	Cores      map[string]*int64 // capacity and allocatable of a type's resource, by type; nil removes it
	Advertised []string          // as in Resources
}

// DecideResources returns the change that gives a node the resources of its workload types; ok is false if none is due.
// A resource is removed only if the agent has added it.
func DecideResources(n Resources, types []string) (p ResourcesPatch, ok bool) {
	p = ResourcesPatch{Cores: map[string]*int64{}}
	for _, workload := range types {
		ours := slices.Contains(n.Advertised, workload)
		if n.CPUs > 0 && !n.has(workload, n.CPUs) {
			p.Cores[workload], ours = new(n.CPUs), true
		}
		if ours {
			p.Advertised = append(p.Advertised, workload)
		}
	}
	for _, workload := range n.Advertised {
		if !slices.Contains(types, workload) && n.names(workload) {
			p.Cores[workload] = nil
		}
	}
	slices.Sort(p.Advertised)
	return p, len(p.Cores) > 0 || !slices.Equal(p.Advertised, n.Advertised)
}

// has reports whether a node has an amount of a type's resource.
func (n Resources) has(workload string, cores int64) bool {
	capacity, ok := n.Capacity[workload]
	allocatable, also := n.Allocatable[workload]
	return ok && also && capacity == cores && allocatable == cores
}

// names reports whether a node names a type's resource.
func (n Resources) names(workload string) bool {
	_, capacity := n.Capacity[workload]
	_, allocatable := n.Allocatable[workload]
	return capacity || allocatable
}

// Equal reports whether two nodes are the same here.
func (n Resources) Equal(other Resources) bool {
	return n.Name == other.Name && n.UID == other.UID && n.Config == other.Config && n.CPUs == other.CPUs &&
		slices.Equal(n.Advertised, other.Advertised) && maps.Equal(n.Capacity, other.Capacity) && maps.Equal(n.Allocatable, other.Allocatable)
}

// WorkloadTypes returns the workload types that an annotation lists.
func WorkloadTypes(annotation string) []string {
	types := strings.FieldsFunc(annotation, func(r rune) bool { return r == ',' })
	slices.Sort(types)
	return slices.Compact(types)
}
