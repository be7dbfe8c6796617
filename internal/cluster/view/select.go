package view

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"machine-pivot/internal/cluster/objects"
)

// Pools that others do not replace: a node of a custom pool is usually a worker, too.
const (
	masterPool = "master"
	workerPool = "worker"
)

// poolOf returns the pool of a node by its labels, as the machine-config operator decides it
// (pkg/helpers/helpers.go, GetPoolsForNode): a node of the control plane is in the pool master, a node of a
// custom pool is in that, any other in worker. It is "" if no pool selects the node, or
// several custom ones do, or a custom one beside master.
func poolOf(of map[string]string, pools []objects.MachineConfigPool) string {
	var custom []string
	found := map[string]bool{}
	for _, p := range pools {
		if !selects(p.Spec.NodeSelector, of) {
			continue
		}
		found[p.Name] = true
		if p.Name != masterPool && p.Name != workerPool {
			custom = append(custom, p.Name)
		}
	}
	switch {
	case found[masterPool] && len(custom) == 0:
		return masterPool
	case len(custom) == 1 && !found[masterPool]:
		return custom[0]
	case len(custom) == 0 && found[workerPool]:
		return workerPool
	}
	return ""
}

// selects reports whether a selector matches labels. An empty one matches nothing, as the operator reads it.
func selects(selector *metav1.LabelSelector, of map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !s.Empty() && s.Matches(labels.Set(of))
}
