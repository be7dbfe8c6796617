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
	var kinds []string
	for _, m := range regexp.MustCompile(`\bKind += "(\w+)"`).FindAllStringSubmatch(readText(t, "internal/api/api.go"), -1) {
		kinds = append(kinds, m[1])
	}
	if len(kinds) < 5 {
		t.Fatalf("only the kinds %q", kinds)
	}
	var scripts strings.Builder
	for _, pattern := range []string{"cmd/*/testdata/*.txtar", "cmd/*/testdata/*/*.txtar"} {
		for _, path := range matches(t, pattern) {
			scripts.WriteString(readText(t, path))
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
		if !strings.Contains(readText(t, path), `"$id": "urn:pivot:v1:`+kind+`"`) {
			t.Errorf("%s has no $id by which another schema can refer to it", path)
		}
	}
}
