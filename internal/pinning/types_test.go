package pinning_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/pinning"
)

func TestTypes(t *testing.T) {
	for file, want := range map[string][]string{
		"":                           {"management"}, // as OpenShift's kubelet, which does not read the file
		" \n":                        {"management"},
		"{}":                         {"management"},
		`{"management":{}}`:          {"management"},
		`{"b":{"cpuset":""},"a":{}}`: {"a", "b"},
	} {
		if got, err := pinning.Types([]byte(file)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q has %q (%v), want %q", file, got, err, want)
		}
	}
	many := "{"
	for i := range 17 {
		many += fmt.Sprintf("%q:{},", fmt.Sprint("a", i))
	}
	for file, want := range map[string]string{
		"[]":                                "cannot parse the kubelet file",
		"{}{}":                              "something follows the object",
		`{"a":{"cpuset":"x"}}`:              "cannot parse",
		`{"A":{}}`:                          `"A" is no name of a workload type`,
		`{"":{}}`:                           "is no name",
		`{"a.b/c":{}}`:                      "is no name",
		strings.TrimSuffix(many, ",") + "}": "more than 16 workload types",
	} {
		if got, err := pinning.Types([]byte(file)); err == nil || !strings.Contains(err.Error(), want) || fault.KindOf(err) != fault.BadInput {
			t.Errorf("%q has %q (%v)", file, got, err)
		}
	}
}
