package containerruntime

import (
	"strings"
	"testing"

	"machine-pivot/internal/cluster/api"
)

// TestNextNumber: the next number is that after the highest one of the same pools that is not refused.
func TestNextNumber(t *testing.T) {
	config := func(number, pools string) *ClusterConfig {
		s := &ClusterConfig{Object: &api.ContainerRuntimeConfig{}, Pools: strings.Fields(pools)}
		if number != "none" {
			s.Object.Annotations = map[string]string{"machineconfiguration.openshift.io/mc-name-suffix": number}
		}
		return s
	}
	all := []*ClusterConfig{config("", "a b"), config("3", "b"), config("9", "c"), config("odd", "a"), config("none", "a"), config("10", "d"), config("4000000000", "d")}
	for pools, want := range map[string]int{"a": 1, "b": 4, "a b": 4, "c": 10, "d": 0} {
		if got := config("none", pools).nextNumber(all); got != want {
			t.Errorf("%s: %d, want %d", pools, got, want)
		}
	}
}
