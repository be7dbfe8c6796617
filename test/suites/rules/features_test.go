package rules

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFeaturesCanGo: each feature of pivot is one folder and one line of the program. Without both the program compiles, so
// nothing else names the feature.
func TestFeaturesCanGo(t *testing.T) {
	const list = "cmd/pivot/features.go"
	data, err := os.ReadFile(filepath.Join(root, list))
	if err != nil {
		t.Fatal(err)
	}
	registered := regexp.MustCompile(`(?m)^\t\t(\w+)\.Feature\(\),.*\n`).FindAllStringSubmatch(string(data), -1)
	if len(registered) == 0 {
		t.Fatalf("%s registers no feature", list)
	}
	for _, line := range registered {
		t.Run(line[1], func(t *testing.T) {
			path := regexp.MustCompile(`\n\t"` + module + `/([\w/]+/` + line[1] + `)"`).FindStringSubmatch(string(data))
			if path == nil {
				t.Fatalf("%s does not import %s", list, line[1])
			}
			without := strings.Replace(strings.Replace(string(data), line[0], "", 1), path[0], "", 1)
			compiles(t, map[string]string{list: without}, path[1])
		})
	}
}

// compiles checks that cmd/pivot compiles with other contents of files, and without a folder.
func compiles(t *testing.T, contents map[string]string, folder string) {
	t.Helper()
	dir, replaced := t.TempDir(), map[string]string{}
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range contents {
		file := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		replaced[filepath.Join(absolute, name)] = file
	}
	files, err := filepath.Glob(filepath.Join(absolute, folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", folder, len(files), err)
	}
	for _, file := range files {
		replaced[file] = "" // go takes it for a file that is not there
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "vet", "-overlay", file, "./cmd/pivot")
	cmd.Dir = absolute
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("pivot does not compile without %s: %v\n%s", folder, err, out)
	}
}
