package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestManPages wants each man page of ours that a document, a unit or a help text
// sends its reader to. There is none so far.
func TestManPages(t *testing.T) {
	pages := map[string]bool{} // as in pivot(8)
	var texts []string
	for _, dir := range []string{"README.md", "docs", "systemd-units", "dracut", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if page := regexp.MustCompile(`^(pivot[a-z-]*)\.([1-8])$`).FindStringSubmatch(d.Name()); page != nil {
				pages[page[1]+"("+page[2]+")"] = true
			}
			texts = append(texts, path)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	named := regexp.MustCompile(`\bpivot[a-z-]*\([1-8]\)`)
	for _, path := range texts {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range named.FindAllString(string(data), -1) {
			if !pages[page] {
				t.Errorf("%s sends its reader to %s, which is not there", path, page)
			}
		}
		if len(pages) == 0 && strings.Contains(strings.ToLower(string(data)), "man page") {
			t.Errorf("%s speaks of man pages, of which there are none", path)
		}
	}
}
