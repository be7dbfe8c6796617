package jsonpath_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/machineconfig/jsonpath"
)

func TestDuplicates(t *testing.T) {
	for in, want := range map[string][]string{
		`{"a":1,"b":{"a":1}}`:                   nil,
		`{"a":1,"a":2}`:                         {"$.a"},
		`{"l":[{},{"p":1,"p":2}],"l":0}`:        {"$.l[1].p", "$.l"},
		`{"l":[[1,2],[{"x y":1,"x y":2}]]}`:     {`$.l[1][0]["x y"]`},
		`{"a":"b","b":"a","c":["a","a"],"a":1}`: {"$.a"},
	} {
		if got := jsonpath.Duplicates([]byte(in)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	const in = "{\n \"a\": [\n  1,\n  {\"b\": 2,\n   \"c d\": 3}],\n \"e\": null}"
	got := map[string]int{"$": 0, "$.a": 0, "$.a[0]": 0, "$.a[1].b": 0, `$.a[1]["c d"]`: 0, "$.e": 0, "$.absent": 0}
	jsonpath.Lines([]byte(in), got)
	want := map[string]int{"$": 1, "$.a": 2, "$.a[0]": 3, "$.a[1].b": 4, `$.a[1]["c d"]`: 5, "$.e": 6, "$.absent": 0}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

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
	if got := jsonpath.Of("files", 3, "x y"); got != `.files[3]["x y"]` {
		t.Error(got)
	}
}
