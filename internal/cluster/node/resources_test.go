package node_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/cluster/node"
)

// cores returns amounts of types, written as "a=1 b=2".
func cores(text string) map[string]int64 {
	amounts := map[string]int64{}
	for part := range strings.FieldsSeq(text) {
		var amount int64
		workload, number, _ := strings.Cut(part, "=")
		if _, err := fmt.Sscan(number, &amount); err != nil {
			panic(err)
		}
		amounts[workload] = amount
	}
	return amounts
}

// text returns a change as text: "a=1 b- by a".
func text(p node.ResourcesPatch, ok bool) string {
	if !ok {
		return "nothing"
	}
	var parts []string
	for _, workload := range slices.Sorted(maps.Keys(p.Cores)) {
		if amount := p.Cores[workload]; amount == nil {
			parts = append(parts, workload+"-")
		} else {
			parts = append(parts, fmt.Sprintf("%s=%d", workload, *amount))
		}
	}
	return strings.Join(append(append(parts, "by"), p.Advertised...), " ")
}

func TestDecideResources(t *testing.T) {
	for name, c := range map[string]struct {
		types                             string
		capacity, allocatable, advertised string
		cpus                              int64
		want                              string
	}{
		"no partitioning":                        {"", "", "", "", 4000, "nothing"},
		"new":                                    {"management", "", "", "", 4000, "management=4000 by management"},
		"two types":                              {"a b", "", "", "", 4000, "a=4000 b=4000 by a b"},
		"right":                                  {"a b", "a=4000 b=4000", "a=4000 b=4000", "a,b", 4000, "nothing"},
		"kubelet's own":                          {"management", "management=4000", "management=4000", "", 4000, "nothing"},
		"kubelet's own, without the file":        {"", "management=4000", "management=4000", "", 4000, "nothing"},
		"set to 0":                               {"a b", "a=0 b=4000", "a=0 b=4000", "a,b", 4000, "a=4000 by a b"},
		"dropped":                                {"a", "", "", "a", 4000, "a=4000 by a"},
		"allocatable set to 0":                   {"a", "a=4000", "a=0", "a", 4000, "a=4000 by a"},
		"allocatable missing":                    {"a", "a=4000", "", "a", 4000, "a=4000 by a"},
		"no amount":                              {"a", "a=-1", "a=4000", "a", 4000, "a=4000 by a"},
		"more CPUs":                              {"a", "a=4000", "a=4000", "a", 8000, "a=8000 by a"},
		"kubelet has not reported":               {"a", "", "", "", 0, "nothing"},
		"kubelet has not reported, and it was 0": {"a", "a=0", "a=0", "a", 0, "nothing"},
		"the file is gone":                       {"", "a=4000 b=4000", "a=4000 b=4000", "a,b", 4000, "a- b- by"},
		"a type is gone":                         {"a", "a=4000 b=0", "a=4000", "a,b", 4000, "b- by a"},
		"a type is gone, and so is its amount":   {"a", "a=4000", "a=4000", "b,a", 4000, "by a"},
		"another type":                           {"b", "a=4000", "a=4000", "a", 4000, "a- b=4000 by b"},
		"gone before kubelet has reported":       {"", "a=0", "a=0", "a", 0, "a- by"},
	} {
		n := node.Resources{CPUs: c.cpus, Advertised: node.WorkloadTypes(c.advertised), Capacity: cores(c.capacity), Allocatable: cores(c.allocatable)}
		p, ok := node.DecideResources(n, strings.Fields(c.types))
		if got := text(p, ok); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if after := applied(n, p); ok {
			if p, ok := node.DecideResources(after, strings.Fields(c.types)); ok {
				t.Errorf("%s: it does not settle: %s", name, text(p, ok))
			}
		}
	}
}

// applied returns a node after a change.
func applied(n node.Resources, p node.ResourcesPatch) node.Resources {
	n.Advertised, n.Capacity, n.Allocatable = p.Advertised, maps.Clone(n.Capacity), maps.Clone(n.Allocatable)
	for workload, amount := range p.Cores {
		if amount == nil {
			delete(n.Capacity, workload)
			delete(n.Allocatable, workload)
		} else {
			n.Capacity[workload], n.Allocatable[workload] = *amount, *amount
		}
	}
	return n
}
