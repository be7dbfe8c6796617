package document_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

// TestWithout: what is left of a document keeps the paths and lines that it has there, also
// in another list, in what an alias stands for, and twice.
func TestWithout(t *testing.T) {
	const text = "list:\n- a\n- {b: [1, 2, 3]}\n- c\nother: &x [p, q]\nalias: *x\nx y: 1\n"
	report := document.Read("f.yaml", []byte(text), func(root document.Node) {
		rest := root.Without(map[string]bool{"$.list[0]": true, "$.list[1].b[1]": true, "$.other[0]": true, `$["x y"]`: true, "$.absent[7]": true})
		if got := string(rest.JSON()); got != `{"list":[{"b":[1,3]},"c"],"other":["q"],"alias":["p","q"]}` {
			t.Error(got)
		}
		if got := string(root.JSON()); !strings.Contains(got, `["a",{"b":[1,2,3]},"c"]`) {
			t.Errorf("the document itself has changed: %s", got)
		}
		for path, want := range map[string]string{".list[0].b[1]": "$.list[1].b[2]", ".list[1]": "$.list[2]", ".other[0]": "$.other[1]", ".alias[0]": "$.alias[0]", ".list[5].z": "$.list[5].z"} {
			at, found := rest.Find(document.Steps(path)...)
			if at.Path != want || found == strings.HasSuffix(path, "z") {
				t.Errorf("%s is %s (%v), want %s", path, at.Path, found, want)
			}
			at.Fail("%s", path)
		}
	})
	for _, want := range []string{"f.yaml:4: error: $.list[2]: .list[1]", "f.yaml:3: error: $.list[1].b[2]: .list[0].b[1]"} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("no %q in\n%s", want, report)
		}
	}
	if n, found := (document.Node{Path: "$", Report: &problem.Report{}}).Find("a", 1); found || n.Path != "$.a[1]" {
		t.Errorf("%v %v", n.Path, found)
	}
}
