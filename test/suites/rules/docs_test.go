package rules

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"machine-pivot/test/suites/docs"
)

// documents returns the paths of all documents.
func documents(t *testing.T) []string {
	t.Helper()
	paths, err := docs.Find(root)
	if err != nil || len(paths) < 20 {
		t.Fatalf("documents %q, %v", paths, err)
	}
	return paths
}

// TestDocs parses the JSON and YAML blocks of the documents, which readers may copy.
func TestDocs(t *testing.T) {
	for _, path := range documents(t) {
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

// TestDependencies checks that docs/dev/dependencies.md has a line for each module that go.mod requires
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
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^- `([^`]+)`: ").FindAllStringSubmatch(readText(t, "docs/dev/dependencies.md"), -1) {
		named[m[1]] = true
	}
	want := func(path string) {
		if !named[path] {
			t.Errorf("docs/dev/dependencies.md has no line for %s: say what it is for", path)
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
		t.Errorf("docs/dev/dependencies.md names %s, which go.mod does not require", path)
	}
}

// TestFailurePage: the page for a first boot that failed fits on one screen, and where a
// failure is read or looked up, it is named.
func TestFailurePage(t *testing.T) {
	page := readText(t, "docs/failed.md")
	if lines := strings.Count(page, "\n"); lines > 45 {
		t.Errorf("the page has %d lines: that is no screen", lines)
	}
	for _, needed := range []string{"systemctl restart pivot-firstboot", "systemctl reset-failed pivot-firstboot", "pivot firstboot --again", "pivot-initramfs", "/sysroot", "4. **"} {
		if !strings.Contains(page, needed) {
			t.Errorf("the page does not have %q", needed)
		}
	}
	if !strings.Contains(readText(t, "docs/status.md"), "(failed.md)") {
		t.Error("docs/status.md does not link to the page")
	}
	for _, entry := range strings.Split(readText(t, "systemd-units/pivot.catalog"), "\n-- ") {
		subject := strings.Contains(entry, "\nSubject: pivot failed\n") || strings.Contains(entry, "\nSubject: The machine stays on its old system\n")
		if subject != strings.Contains(entry, `"man pivot-failed"`) {
			t.Errorf("the page is named where it does not help, or is missing: %s", entry)
		}
	}
}

// TestNamedDocuments checks that the documents that code, units and the Makefile name exist.
func TestNamedDocuments(t *testing.T) {
	files := append(matches(t, "systemd-units/*.service"), "systemd-units/pivot.catalog", "Makefile")
	for _, p := range packages(t) {
		for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			files = append(files, p.Dir+"/"+name)
		}
	}
	named := regexp.MustCompile(`\bdocs/[a-z0-9/-]+\.md\b`)
	all := documents(t)
	for _, file := range files {
		for _, path := range named.FindAllString(readText(t, file), -1) {
			if !slices.Contains(all, path) {
				t.Errorf("%s names %s, which is not there", file, path)
			}
		}
	}
}
