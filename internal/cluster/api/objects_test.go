package api_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"machine-pivot/internal/cluster/api"
)

// Each kind is in the scheme with its list, and a copy of it is equal but shares nothing.
func TestKinds(t *testing.T) {
	s := runtime.NewScheme()
	api.AddTo(s)
	for group, kinds := range map[string][]string{
		api.OperatorGroup: {"MachineConfig", "MachineConfigPool", "ContainerRuntimeConfig"},
		api.Group:         {"NodeSystem", "PoolRollout"},
	} {
		for _, kind := range kinds {
			known := map[string]reflect.Type{}
			for gvk, of := range s.AllKnownTypes() {
				if gvk.Group == group {
					known[gvk.Kind] = of
				}
			}
			if known[kind] == nil || known[kind+"List"] == nil {
				t.Errorf("%s or its list is not in the scheme", kind)
			}
		}
	}
	pool := &api.MachineConfigPool{}
	pool.Name, pool.Labels = "worker", map[string]string{"a": "b"}
	copied, ok := pool.DeepCopyObject().(*api.MachineConfigPool)
	if !ok || !reflect.DeepEqual(copied, pool) {
		t.Fatalf("the copy of a pool is %+v", copied)
	}
	if copied.Labels["a"] = "c"; pool.Labels["a"] != "b" {
		t.Error("a copy shares the labels of its original")
	}
}

// TestTurn: one zone after the other, those without a zone last; within a zone the oldest first.
func TestTurn(t *testing.T) {
	node := func(name, zone string, age time.Duration) api.Turn {
		n := api.Turn{Name: name, Created: time.Unix(0, 0).Add(-age)}
		if zone != "" {
			n.Labels = map[string]string{"topology.kubernetes.io/zone": zone}
		}
		return n
	}
	nodes := []api.Turn{node("e", "", 9), node("d", "b", 8), node("c", "a", 1), node("b", "a", 2), node("a", "a", 1)}
	slices.SortFunc(nodes, api.Turn.Compare)
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	if got := strings.Join(names, ""); got != "bacde" {
		t.Errorf("the order is %s", got)
	}
}
