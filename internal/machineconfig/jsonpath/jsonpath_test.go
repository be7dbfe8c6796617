package jsonpath_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/machineconfig/jsonpath"
)

func TestAt(t *testing.T) {
	const in = `{"a":[1,{"b":"xyz"}],"c":true}`
	for mark, want := range map[string]string{"xyz": "$.a[1].b", "true": "$.c"} {
		if got := jsonpath.At([]byte(in), int64(strings.Index(in, mark)+1)); got != want {
			t.Errorf("%s: %s, want %s", mark, got, want)
		}
	}
}

func TestParent(t *testing.T) {
	for path, want := range map[string]string{
		"$.a.b": "$.a", "$.a[3]": "$.a", `$.a["x.y[1]"]`: "$.a", "$": "", "$.a": "$",
	} {
		if got := jsonpath.Parent(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	const path = `.files[3]["x y\"]"]["1a"].b-c`
	if got := jsonpath.Of("files", 3, `x y"]`, "1a", "b-c"); got != path {
		t.Error(got)
	}
	if got := jsonpath.Of(jsonpath.Steps("$" + path)...); got != path {
		t.Error(got)
	}
}
