package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSchemas checks that each kind of document has a schema with an $id, and that a script validates real output
// of the program against it.
func TestSchemas(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(root, "internal/api/api.go"))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, m := range regexp.MustCompile(`\bKind += "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		kinds = append(kinds, m[1])
	}
	if len(kinds) < 5 {
		t.Fatalf("only the kinds %q", kinds)
	}
	var scripts strings.Builder
	for _, pattern := range []string{"cmd/*/testdata/*.txtar", "cmd/*/testdata/*/*.txtar"} {
		for _, path := range matches(t, pattern) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			scripts.Write(text)
		}
	}
	for _, kind := range kinds {
		if _, err := os.Stat(filepath.Join(root, "docs/schema", kind+".json")); err != nil {
			t.Errorf("%s has no schema: %v", kind, err)
		}
		if !regexp.MustCompile(`(?m)^documents? ` + kind + ` `).MatchString(scripts.String()) {
			t.Errorf("no script holds a document %s against its schema", kind)
		}
	}
	for _, path := range matches(t, "docs/schema/*.json") {
		kind := strings.TrimSuffix(filepath.Base(path), ".json")
		if !slices.Contains(kinds, kind) {
			t.Errorf("%s is of no kind of document", path)
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), `"$id": "urn:pivot:v1:`+kind+`"`) {
			t.Errorf("%s has no $id by which another schema can refer to it: %v", path, err)
		}
	}
}

func matches(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}
