package kube

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/node"
)

// amounts are amounts of resources, by name.
type amounts map[string]json.RawMessage

// of returns the amount of a resource; ok is false if there is none, or if it is no amount.
func (a amounts) of(name string) (q resource.Quantity, ok bool) {
	text, ok := a[name]
	return q, ok && q.UnmarshalJSON(text) == nil
}

// workloads returns the amounts of the resources of workload types, by type. One that is no whole number is
// another amount than any that is wanted.
func (a amounts) workloads() map[string]int64 {
	found := map[string]int64{}
	for name := range a {
		if workload, ok := strings.CutSuffix(name, node.WorkloadCores); ok {
			found[workload] = -1
			if q, ok := a.of(name); ok {
				found[workload] = q.Value()
			}
		}
	}
	return found
}

// capacity returns what a Keeper uses of a node.
func (o object) capacity() node.Resources {
	n := node.Resources{
		Name: o.Metadata.Name, UID: o.Metadata.UID, Config: o.Metadata.Annotations[api.CurrentConfig],
		Advertised: node.WorkloadTypes(o.Metadata.Annotations[api.Advertised]),
		Capacity:   o.Status.Capacity.workloads(), Allocatable: o.Status.Allocatable.workloads(),
	}
	if cpus, ok := o.Status.Capacity.of("cpu"); ok {
		n.CPUs = cpus.MilliValue()
	}
	return n
}

// Advertise implements node.Advertiser. Status and annotation change at once: the Node's status can be written
// with its metadata. No resource version is compared, since kubelet writes the status often, and the right amounts
// do not depend on what else is in it.
func (c *Cluster) Advertise(ctx context.Context, p node.ResourcesPatch) (node.Resources, error) {
	cores := map[string]any{}
	for workload, amount := range p.Cores {
		cores[workload+node.WorkloadCores] = nil
		if amount != nil {
			cores[workload+node.WorkloadCores] = strconv.FormatInt(*amount, 10)
		}
	}
	annotations := map[string]any{api.Advertised: nil}
	if len(p.Advertised) > 0 {
		annotations[api.Advertised] = strings.Join(p.Advertised, ",")
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": annotations},
		"status":   map[string]any{"capacity": cores, "allocatable": cores},
	})
	if err != nil {
		return node.Resources{}, err
	}
	var o object
	r := c.API.Patch(types.MergePatchType).AbsPath(c.nodePath(), "status").Param("fieldManager", fieldManager).Body(body)
	err = c.do(ctx, r, "advertise the workloads of the node "+c.Name, &o)
	return o.capacity(), err
}
