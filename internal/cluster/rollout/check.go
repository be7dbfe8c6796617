package rollout

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"machine-pivot/internal/cluster/nodecheck"
)

// checkNodes evaluates a pool's expression for each node that has the pool's configuration. objects are the
// nodes in the same order.
func checkNodes(p *Pool, nodes []Node, objects []corev1.Node) {
	if p.Spec.Checks.Node == "" {
		return
	}
	check, err := nodecheck.Compile(p.Spec.Checks.Node)
	if err != nil {
		p.CheckProblem = err.Error()
		return
	}
	selector, err := selectorOf(p.Selector)
	if err != nil {
		return
	}
	for i := range nodes {
		if n := &nodes[i]; n.current() == p.Configuration.Name && selector.Matches(labels.Set(n.Labels)) {
			n.Check = checkNode(check, &objects[i])
		}
	}
}

// checkNode returns why an expression is not true for a node; "" if it is.
func checkNode(check nodecheck.Check, n *corev1.Node) string {
	document, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
	if err != nil {
		return err.Error()
	}
	switch holds, err := check.Holds(document); {
	case err != nil:
		return err.Error()
	case !holds:
		return "spec.checks.node is false"
	}
	return ""
}
