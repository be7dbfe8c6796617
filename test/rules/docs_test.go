package rules

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestDocs parses the JSON and YAML blocks of the documents, as a reader who
// copies them would.
func TestDocs(t *testing.T) {
	documents, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	recipes, err2 := filepath.Glob(filepath.Join(root, "docs/recipes/*.md"))
	if err != nil || err2 != nil || len(recipes) == 0 {
		t.Fatalf("no documents: %v, %v", err, err2)
	}
	for _, path := range slices.Concat(documents, recipes, []string{filepath.Join(root, "README.md")}) {
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(string(data)) {
			if err := b.parse(); err != nil {
				t.Errorf("%s:%d: %s block: %v", strings.TrimPrefix(path, root+"/"), b.line, b.language, err)
			}
		}
	}
}

// block is one fenced block of a Markdown document.
type block struct {
	language, text string
	line           int
}

func (b block) parse() error {
	var v any
	switch b.language {
	case "json":
		return json.Unmarshal([]byte(b.text), &v)
	case "yaml":
		return yaml.Unmarshal([]byte(b.text), &v)
	}
	return nil
}

func blocks(text string) []block {
	var found []block
	var open *block
	var indent string
	for i, line := range strings.Split(text, "\n") {
		fence, info, ok := strings.Cut(line, "```")
		switch {
		case open == nil && ok && strings.TrimSpace(fence) == "":
			indent = fence
			language, _, _ := strings.Cut(strings.TrimSpace(info), " ") // what follows is a file's name
			open = &block{language: strings.ToLower(language), line: i + 1}
		case open != nil && ok && strings.TrimSpace(fence) == "":
			found = append(found, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	return found
}

// TestDependencies wants a line in docs/dependencies.md for each module that
// go.mod requires by our own choice, and no line for one that it does not.
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
