package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"machine-pivot/test/docs"
)

// index is the document from which each other can be reached by one link.
const index = "docs/README.md"

// TestLinks (P76): each link in a document leads to a file that is there and to a heading of
// it, and the index names each document.
func TestLinks(t *testing.T) {
	paths, err := docs.Find(root)
	if err != nil || len(paths) < 20 {
		t.Fatalf("documents %q, %v", paths, err)
	}
	listed := map[string]bool{index: true}
	for _, path := range paths {
		for _, l := range links(t, path) {
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

var inline = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// links are the targets of the links and pictures in a document's text.
func links(t *testing.T, path string) (found []link) {
	t.Helper()
	for _, part := range docs.Parse(readText(t, path)) {
		if part.Block != nil {
			continue
		}
		for _, m := range inline.FindAllStringSubmatch(withoutCode(part.Text), -1) {
			found = append(found, link{m[1], part.Line})
		}
	}
	return found
}

var code = regexp.MustCompile("`[^`]*`")

// withoutCode is a line without what stands between backquotes, of which nothing is a link;
// but for links whose text is code.
func withoutCode(line string) string {
	return code.ReplaceAllString(line, "code")
}

// broken says what is wrong with a link of a document; "" if nothing is. Addresses in the
// network are not asked for.
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

// anchors are the headings of a document as links name them: in lower case, with hyphens
// for spaces, and without all but letters, digits, hyphens and underscores.
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

func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestAnchors: headings are named as the readers of Markdown name them, and what a block
// holds is no heading and no link.
func TestAnchors(t *testing.T) {
	const text = "# The `x` of it\n## A, B - and C_1\n```sh\n# no heading\n[no](link.md)\n```\n`[no](code.md)` [a](b.md#c), [`d`](e.md)\n"
	got := anchors(text)
	if len(got) != 2 || !got["the-x-of-it"] || !got["a-b---and-c_1"] {
		t.Errorf("anchors %v", got)
	}
	var targets []string
	for _, part := range docs.Parse(text) {
		if part.Block == nil {
			for _, m := range inline.FindAllStringSubmatch(withoutCode(part.Text), -1) {
				targets = append(targets, m[1])
			}
		}
	}
	if strings.Join(targets, " ") != "b.md#c e.md" {
		t.Errorf("links %q", targets)
	}
	for target, want := range map[string]string{
		"glossary.md": "", "#by-task": "", "glossary.md#no": "there is no such heading", "no.md": "there is no such file", "https://example.org/x#y": "",
	} {
		if got := broken(t, index, target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}
