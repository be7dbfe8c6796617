package rollout

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// checker evaluates the expressions of pools. It keeps its result for a node until the node changes. Few change between
// two passes, and an evaluation costs more than all else that a pass does for a node.
type checker map[string]*poolCheck // by pool

type poolCheck struct {
	expression string
	check      Check
	problem    string             // of the expression
	found      map[string]finding // by node
}

// finding is why the expression is not true for a version of a node; "" if it is.
type finding struct{ version, problem string }

// checkFleet evaluates the expression of each pool for the nodes that belong to it, as Decide assigns them: a node that
// another pool's selector matches, too, does not count there. objects are the nodes of the fleet in the same order.
func (c checker) checkFleet(f *Fleet, objects []corev1.Node) {
	if !slices.ContainsFunc(f.Pools, func(p Pool) bool { return p.Spec.Checks.Node != "" }) {
		clear(c)
		return
	}
	byName := make(map[string]*corev1.Node, len(objects))
	for i := range objects {
		byName[objects[i].Name] = &objects[i]
	}
	a := assign(*f)
	for i := range f.Pools {
		c.checkNodes(&f.Pools[i], a.nodes[f.Pools[i].Name], byName)
	}
}

// checkNodes evaluates a pool's expression for each of its nodes that has the pool's configuration.
func (c checker) checkNodes(p *Pool, nodes []*Node, objects map[string]*corev1.Node) {
	if p.Spec.Checks.Node == "" {
		delete(c, p.Name)
		return
	}
	k := c.of(p)
	if p.CheckProblem = k.problem; k.problem != "" {
		return
	}
	before := k.found
	k.found = make(map[string]finding, len(before))
	for _, n := range nodes {
		if n.current() != p.Configuration.Name {
			continue
		}
		f, ok := before[n.Name]
		if !ok || f.version != n.Version {
			f = finding{n.Version, checkNode(k.check, objects[n.Name])}
		}
		n.Check, k.found[n.Name] = f.problem, f
	}
}

// of returns the check of a pool, which is compiled when its expression is another one than before.
func (c checker) of(p *Pool) *poolCheck {
	if k := c[p.Name]; k != nil && k.expression == p.Spec.Checks.Node {
		return k
	}
	k := &poolCheck{expression: p.Spec.Checks.Node}
	var err error
	if k.check, err = CompileCheck(k.expression); err != nil {
		k.problem = err.Error()
	}
	c[p.Name] = k
	return k
}

// checkNode returns why an expression is not true for a node; "" if it is.
func checkNode(check Check, n *corev1.Node) string {
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
