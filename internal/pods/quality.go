package pods

import (
	"machine-pivot/internal/machineconfig/document"
)

// Quality is a pod's quality of service (QoS) class.
type Quality string

// The QoS classes.
const (
	Guaranteed Quality = "Guaranteed"
	Burstable  Quality = "Burstable"
	BestEffort Quality = "BestEffort"
)

// amounts are the requests or limits of a container.
type amounts map[string]document.Quantity

// container is one container of a pod, with its resources.
type container struct {
	at       document.Node
	name     string
	init     bool
	requests amounts // a missing request defaults to the limit, like in the API server
	limits   amounts
}

// readContainers reads the containers of a pod, init containers last.
func readContainers(spec document.Node) []container {
	var all []container
	seen := map[string]bool{}
	for _, list := range []string{"containers", "initContainers"} {
		for _, item := range spec.Get(list).Items() {
			c := readContainer(item)
			if seen[c.name] {
				item.Fail("the name %q is there twice", c.name)
			}
			seen[c.name] = true
			c.init = list == "initContainers"
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		spec.Get("containers").Fail("it has no containers")
	}
	return all
}

func readContainer(n document.Node) container {
	n.Object()
	c := container{at: n, name: n.Get("name").Text()}
	if c.name == "" {
		n.Fail("it has no name")
	}
	resources := n.Get("resources")
	resources.Object()
	c.requests, c.limits = readAmounts(resources.Get("requests")), readAmounts(resources.Get("limits"))
	for name, limit := range c.limits {
		if _, given := c.requests[name]; !given {
			c.requests[name] = limit
		}
	}
	return c
}

func readAmounts(n document.Node) amounts {
	n.Object()
	read := amounts{}
	for name, value := range n.Members() {
		q, ok := value.Quantity()
		if ok && q.Sign() < 0 {
			value.Fail("%s is negative", q.String())
		}
		if ok {
			read[name] = q
		}
	}
	return read
}

// classOf returns the QoS class of a pod with these containers, computed for workloads like in OpenShift's kubelet and
// API server. Only CPU and memory count, and zero counts as not set. The rules are those of Kubernetes
// (pkg/apis/core/v1/helper/qos), except that a CPU limit also replaces a request of zero, not only a missing one.
func classOf(all []container) Quality {
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

const (
	resourceCPU    = "cpu"
	resourceMemory = "memory"
)
