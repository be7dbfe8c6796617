package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/suites/docs"
)

// index is the document that links to every other document.
const index = "docs/README.md"

// TestLinks (P76) checks that each link in a document leads to an existing file and heading, and that
// the index links to each document.
func TestLinks(t *testing.T) {
	paths := documents(t)
	listed := map[string]bool{index: true}
	for _, path := range paths {
		for _, l := range links(readText(t, path)) {
			if problem := broken(t, path, l.target); problem != "" {
				t.Errorf("%s:%d: the link to %s: %s", path, l.line, l.target, problem)
			}
			if path == index {
				file, _, _ := strings.Cut(l.target, "#")
				listed[filepath.Join(filepath.Dir(path), file)] = true
			}
		}
	}
	for _, path := range paths {
		if !listed[path] {
			t.Errorf("%s does not name %s: say for which task it is", index, path)
		}
	}
}

type link struct {
	target string
	line   int
}

var (
	inline = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code   = regexp.MustCompile("`[^`]*`")
)

// withoutCode replaces inline code in a line with "code", because code contains no links. A link with
// code as its text remains a link.
func withoutCode(line string) string { return code.ReplaceAllString(line, "code") }

// links returns the links and images in a document's text.
func links(text string) (found []link) {
	for _, part := range docs.Parse(text) {
		if part.Block != nil {
			continue
		}
		for _, m := range inline.FindAllStringSubmatch(withoutCode(part.Text), -1) {
			found = append(found, link{m[1], part.Line})
		}
	}
	return found
}

// broken returns the problem with a link in a document, or "". It does not check URLs.
func broken(t *testing.T, from, target string) string {
	t.Helper()
	if strings.Contains(target, "://") {
		return ""
	}
	file, anchor, hasAnchor := strings.Cut(target, "#")
	path := filepath.Join(filepath.Dir(from), file)
	if file == "" {
		path = from
	}
	if _, err := os.Stat(filepath.Join(root, path)); err != nil {
		return "there is no such file"
	}
	if hasAnchor && !anchors(readText(t, path))[anchor] {
		return "there is no such heading"
	}
	return ""
}

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// anchors returns the anchors of a document's headings: in lower case, with hyphens for spaces, and
// without characters other than letters, digits, hyphens and underscores.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, part := range docs.Parse(text) {
		if heading := strings.TrimLeft(part.Text, "#"); part.Block == nil && heading != part.Text {
			name := notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			found[strings.ReplaceAll(name, " ", "-")] = true
		}
	}
	return found
}

// TestAnchors checks that anchors are named as by Markdown renderers, and that the contents of code
// blocks count neither as headings nor as links.
func TestAnchors(t *testing.T) {
	const text = "# The `x` of it\n## A, B - and C_1\n```sh\n# no heading\n[no](link.md)\n```\n`[no](code.md)` [a](b.md#c), [`d`](e.md)\n"
	if got := anchors(text); len(got) != 2 || !got["the-x-of-it"] || !got["a-b---and-c_1"] {
		t.Errorf("anchors %v", got)
	}
	if got := links(text); !slices.Equal(got, []link{{"b.md#c", 7}, {"e.md", 7}}) {
		t.Errorf("links %v", got)
	}
	for target, want := range map[string]string{
		"glossary.md": "", "#documents-by-task": "", "glossary.md#no": "there is no such heading", "no.md": "there is no such file", "https://example.org/x#y": "",
	} {
		if got := broken(t, index, target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}
