package objects_test

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/objects"
)

// Each kind is in the scheme with its list, and a copy of it is equal but shares nothing.
func TestKinds(t *testing.T) {
	s := runtime.NewScheme()
	objects.AddTo(s)
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
	pool := &objects.MachineConfigPool{}
	pool.Name, pool.Labels = "worker", map[string]string{"a": "b"}
	copied, ok := pool.DeepCopyObject().(*objects.MachineConfigPool)
	if !ok || !reflect.DeepEqual(copied, pool) {
		t.Fatalf("the copy of a pool is %+v", copied)
	}
	if copied.Labels["a"] = "c"; pool.Labels["a"] != "b" {
		t.Error("a copy shares the labels of its original")
	}
}
