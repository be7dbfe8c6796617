package document_test

import (
	"testing"

	"machine-pivot/internal/machineconfig/document"
)

func TestPaths(t *testing.T) {
	const path = `.files[3]["x y\"]"]["1a"].b-c`
	if got := document.PathOf("files", 3, `x y"]`, "1a", "b-c"); got != path {
		t.Error(got)
	}
	if got := document.PathOf(document.Steps("$" + path)...); got != path {
		t.Error(got)
	}
}

// TestLineOfParent: a problem at a path that the document does not have gets the line of the nearest parent that it has.
func TestLineOfParent(t *testing.T) {
	const text = "a:\n  b: 1\n  c: [7]\n  \"x.y[1]\": 2\n"
	for path, line := range map[string]int{"$.a.b": 2, "$.a.b.gone": 2, "$.a.c[3]": 3, `$.a["x.y[1]"].z`: 4, "$.a.gone": 1, "$.gone": 1} {
		report := document.Read("a.yaml", []byte(text), func(root document.Node) { root.Report.Fail(path, "wrong") })
		if len(report) != 1 || report[0].Line != line {
			t.Errorf("%s: %v, want line %d", path, report, line)
		}
	}
}
