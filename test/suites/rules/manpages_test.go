package rules

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"machine-pivot/test/tools/manual"
)

// ofCommands adds the pages that are made of a program's page.
func ofCommands(t *testing.T, path string, pages map[string]bool) {
	t.Helper()
	text := readText(t, path)
	if !strings.Contains(text, "\n.Sh COMMANDS\n") {
		return
	}
	of, err := manual.Pages(text)
	if err != nil {
		t.Fatal(err)
	}
	for name := range of {
		name, section, _ := strings.Cut(name, ".")
		pages[name+"("+section+")"] = true
	}
}

// TestManPages checks that each of our man pages to which a document, a unit, a help text or another
// page refers exists. Some units share a page with another unit.
func TestManPages(t *testing.T) {
	pages := map[string]bool{} // as in pivot(8)
	var texts []string
	for _, dir := range []string{"README.md", "docs", "systemd-units", "dracut", "cmd", "man"} {
		err := fs.WalkDir(os.DirFS(root), dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if page := regexp.MustCompile(`^((?:pivot|firstboot)[a-z.-]*)\.([1-8])$`).FindStringSubmatch(d.Name()); page != nil {
				pages[page[1]+"("+page[2]+")"] = true
				ofCommands(t, path, pages)
			}
			texts = append(texts, path)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(pages) < 5 {
		t.Fatalf("only the pages %v", pages)
	}
	named := regexp.MustCompile(`\b((?:pivot|firstboot)[a-z.-]*)(?:\(| )([1-8])\b`) // in mdoc: .Xr pivot 8
	for _, path := range texts {
		for _, m := range named.FindAllStringSubmatch(readText(t, path), -1) {
			if page := m[1] + "(" + m[2] + ")"; !pages[page] {
				t.Errorf("%s sends its reader to %s, which is not there", path, page)
			}
		}
	}
}
