package rules

import (
	"encoding/json"
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
		var schema any
		if err := json.Unmarshal([]byte(readText(t, path)), &schema); err != nil {
			t.Fatal(path, err)
		}
		for _, field := range undescribed(schema) {
			t.Errorf("%s has no description of %s", path, field)
		}
	}
}

// undescribed returns the fields of a schema that have neither a description nor one value only.
func undescribed(schema any) (names []string) {
	switch value := schema.(type) {
	case []any:
		for _, element := range value {
			names = append(names, undescribed(element)...)
		}
	case map[string]any:
		fields, _ := value["properties"].(map[string]any)
		for name, field := range fields {
			of, _ := field.(map[string]any)
			if text, _ := of["description"].(string); text == "" && of["const"] == nil {
				names = append(names, name)
			}
		}
		for _, member := range value {
			names = append(names, undescribed(member)...)
		}
	}
	return names
}
