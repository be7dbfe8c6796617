package view

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"machine-pivot/internal/cluster/objects"
)

// poolOf returns the pool of a node by its labels, as the fleet's controller decides it; "" if no pool claims the
// node, or several do.
func poolOf(of map[string]string, pools []objects.MachineConfigPool) string {
	var selecting []string
	for _, p := range pools {
		if selects(p.Spec.NodeSelector, of) {
			selecting = append(selecting, p.Name)
		}
	}
	if claimed := objects.ClaimedBy(selecting); len(claimed) == 1 {
		return claimed[0]
	}
	return ""
}

// selects reports whether a selector matches labels. An empty one matches nothing, as the operator reads it.
func selects(selector *metav1.LabelSelector, of map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !s.Empty() && s.Matches(labels.Set(of))
}
