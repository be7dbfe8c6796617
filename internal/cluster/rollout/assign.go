package rollout

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"machine-pivot/internal/cluster/api"
)

// master is the pool of the control plane.
const master = api.MasterPool

// assignment is which node belongs to which pool.
type assignment struct {
	nodes    map[string][]*Node  // by pool
	problems map[string][]string // by pool: what is wrong with its nodes or its selector
}

// assign gives each node to one pool, as the machine-config operator does: master before all others, a custom
// pool before worker. What is ambiguous belongs to none.
func assign(f Fleet) assignment {
	a := assignment{map[string][]*Node{}, map[string][]string{}}
	selectors := map[string]labels.Selector{}
	for _, p := range f.Pools {
		if p.Orphan {
			continue
		}
		s, err := selectorOf(p.Selector)
		if err != nil {
			a.problems[p.Name] = append(a.problems[p.Name], err.Error())
			continue
		}
		selectors[p.Name] = s
	}
	for i := range f.Nodes {
		a.add(&f.Nodes[i], poolsOf(f, selectors, &f.Nodes[i]))
	}
	return a
}

// selectorOf returns the selector of a pool. One that matches each node is refused: the pool would take all
// nodes of worker.
func selectorOf(s *v1.LabelSelector) (labels.Selector, error) {
	selector, err := v1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("cannot use spec.nodeSelector: %w", err)
	}
	if s == nil || selector.Empty() {
		return nil, fmt.Errorf("cannot use spec.nodeSelector: it would select each node; name a label, such as node-role.kubernetes.io/worker")
	}
	return selector, nil
}

// poolsOf returns the pools that claim a node: more than one is a contradiction.
func poolsOf(f Fleet, selectors map[string]labels.Selector, n *Node) []string {
	var selecting []string
	for i := range f.Pools {
		if s := selectors[f.Pools[i].Name]; s != nil && s.Matches(labels.Set(n.Labels)) {
			selecting = append(selecting, f.Pools[i].Name)
		}
	}
	return api.ClaimedBy(selecting)
}

// add gives a node to the one pool that claims it, or else says in each of them why not. Only master may have
// nodes of the control plane: two pools do not wait for each other.
func (a *assignment) add(n *Node, pools []string) {
	problem := ""
	switch {
	case len(pools) == 0:
		return
	case len(pools) > 1:
		slices.Sort(pools)
		problem = fmt.Sprintf("%s is in the pools %s; leave it in one", n.Name, strings.Join(pools, " and "))
	case pools[0] != master && api.IsControlPlane(n.Labels):
		problem = fmt.Sprintf("%s is a node of the control plane, which only the pool %s may have; label it for that pool", n.Name, master)
	}
	for _, pool := range pools {
		if problem != "" {
			a.problems[pool] = append(a.problems[pool], problem)
		} else {
			a.nodes[pool] = append(a.nodes[pool], n)
		}
	}
}
