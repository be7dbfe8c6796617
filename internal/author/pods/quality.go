package pods

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"machine-pivot/internal/author/quantity"
)

// Quality is a pod's quality of service class.
type Quality string

// The classes.
const (
	Guaranteed Quality = "Guaranteed"
	Burstable  Quality = "Burstable"
	BestEffort Quality = "BestEffort"
)

// amounts are the requests or limits of a container.
type amounts map[string]resource.Quantity

// container is one container of a pod, with what it asks for.
type container struct {
	object
	name     string
	init     bool
	requests amounts // with the limit where only that is given, as the API server defaults it
	limits   amounts
}

// readContainers reads the containers of a pod, init containers last.
func readContainers(spec object) ([]container, error) {
	var all []container
	seen := map[string]bool{}
	for _, list := range []string{"containers", "initContainers"} {
		n := spec.get(list)
		if n == nil || n.Tag == "!!null" {
			continue
		}
		for i, item := range n.Content {
			c, err := readContainer(object{item})
			if err != nil {
				return nil, fmt.Errorf("spec.%s[%d]: %w", list, i, err)
			}
			if seen[c.name] {
				return nil, fmt.Errorf("spec.%s[%d]: the name %q is there twice", list, i, c.name)
			}
			seen[c.name] = true
			c.init = list == "initContainers"
			all = append(all, c)
		}
	}
	return all, nil
}

func readContainer(o object) (container, error) {
	c := container{object: o, name: o.text("name")}
	if c.name == "" {
		return c, fmt.Errorf("it has no name")
	}
	resources, err := o.child("resources")
	if err != nil {
		return c, err
	}
	if c.requests, err = readAmounts(resources, "requests"); err != nil {
		return c, err
	}
	if c.limits, err = readAmounts(resources, "limits"); err != nil {
		return c, err
	}
	for name, limit := range c.limits {
		if _, given := c.requests[name]; !given {
			c.requests[name] = limit
		}
	}
	return c, nil
}

func readAmounts(resources object, of string) (amounts, error) {
	list, err := resources.child(of)
	if err != nil {
		return nil, fmt.Errorf("resources.%w", err)
	}
	read := amounts{}
	for _, name := range list.names() {
		q, err := quantity.Parse(list.text(name))
		if err != nil {
			return nil, fmt.Errorf("resources.%s.%s: %w", of, name, err)
		}
		if q.Sign() < 0 {
			return nil, fmt.Errorf("resources.%s.%s: %s is negative", of, name, q.String())
		}
		read[name] = q
	}
	return read, nil
}

// quality is the class of a pod with these containers, as OpenShift's kubelet and
// API server work it out for workloads: by CPU and memory only, and zero is
// nothing. As Kubernetes does (pkg/apis/core/v1/helper/qos), but that a limit of
// CPU stands for a request of zero too, not only for one that is missing.
func quality(all []container) Quality {
	counted := []string{resourceCPU, resourceMemory}
	anything, guaranteed := false, true
	for _, c := range all {
		for _, name := range counted {
			request, limit := c.requests[name], c.limits[name]
			anything = anything || request.Sign() > 0 || limit.Sign() > 0
			byLimit := name == resourceCPU && request.Sign() == 0
			guaranteed = guaranteed && limit.Sign() > 0 && (byLimit || limit.Cmp(request) == 0)
		}
	}
	switch {
	case !anything:
		return BestEffort
	case guaranteed:
		return Guaranteed
	}
	return Burstable
}

// milli is an amount in thousandths, rounded up; at most what 64 bits hold, beyond which
// Kubernetes' own result is arbitrary.
func milli(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64/1000) > 0 {
		return math.MaxInt64
	}
	return q.MilliValue()
}

const (
	resourceCPU    = "cpu"
	resourceMemory = "memory"
)
