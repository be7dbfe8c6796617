package rules

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"machine-pivot/test/suites/docs"
)

// TestDocs parses the JSON and YAML blocks of the documents, which readers may copy.
func TestDocs(t *testing.T) {
	paths, err := docs.Find(root)
	if err != nil || len(paths) < 20 {
		t.Fatalf("documents %q, %v", paths, err)
	}
	for _, path := range paths {
		for _, part := range docs.Parse(readText(t, path)) {
			if part.Block == nil {
				continue
			}
			if err := parse(part.Block); err != nil {
				t.Errorf("%s:%d: %s block: %v", path, part.Line, part.Block.Language, err)
			}
		}
	}
}

func parse(b *docs.Block) error {
	var v any
	switch b.Language {
	case "json":
		return json.Unmarshal([]byte(b.Content()), &v)
	case "yaml":
		return yaml.Unmarshal([]byte(b.Content()), &v)
	}
	return nil
}

// TestDependencies checks that docs/dependencies.md has a line for each module that go.mod requires
// directly, and no line for any other module.
func TestDependencies(t *testing.T) {
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Tool []struct{ Path string }
	}
	if err := json.Unmarshal([]byte(run(t, "go", "mod", "edit", "-json")), &mod); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, "docs/dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, line := range strings.Split(string(data), "\n") {
		if path, ok := strings.CutPrefix(line, "| `"); ok {
			path, _, _ = strings.Cut(path, "`")
			named[path] = true
		}
	}
	want := func(path string) {
		if !named[path] {
			t.Errorf("docs/dependencies.md has no line for %s: say what it is for", path)
		}
		delete(named, path)
	}
	for _, r := range mod.Require {
		if !r.Indirect {
			want(r.Path)
		}
	}
	for _, tool := range mod.Tool {
		want(tool.Path)
	}
	for path := range named {
		t.Errorf("docs/dependencies.md names %s, which go.mod does not require", path)
	}
}
