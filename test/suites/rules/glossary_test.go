package rules

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/suites/docs"
)

// TestGlossary checks that each line of docs/glossary.md explains one term, in
// alphabetical order, and that documents or code use the term.
func TestGlossary(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs/glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	terms, problems := glossaryTerms(string(data))
	for _, p := range problems {
		t.Error(p)
	}
	used := strings.ToLower(documentsAndCode(t))
	for _, term := range terms {
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(strings.ToLower(term))).MatchString(used) {
			t.Errorf("no document and no code uses the term %q", term)
		}
	}
}

// glossaryTerms returns the terms that a glossary explains and the problems in its form.
func glossaryTerms(text string) (terms, problems []string) {
	form := regexp.MustCompile(`^- \*\*([^*]+)\*\*: .+[.\]]$`)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, "- ") {
			if len(terms) > 0 && line != "" {
				problems = append(problems, fmt.Sprintf("a line explains no term: %q", line))
			}
			continue
		}
		m := form.FindStringSubmatch(line)
		if m == nil {
			problems = append(problems, fmt.Sprintf("a line is no term with a sentence: %q", line))
			continue
		}
		terms = append(terms, m[1])
	}
	byName := func(a, b string) int { return cmp.Compare(strings.ToLower(a), strings.ToLower(b)) }
	for i := range terms[:max(len(terms)-1, 0)] {
		if byName(terms[i], terms[i+1]) >= 0 {
			problems = append(problems, fmt.Sprintf("%q stands before %q", terms[i], terms[i+1]))
		}
	}
	if len(terms) == 0 {
		problems = append(problems, "there is no term")
	}
	return terms, problems
}

// documentsAndCode returns the text of all documents except the glossary and of the product's source
// files.
func documentsAndCode(t *testing.T) string {
	t.Helper()
	documents, err := docs.Find(root)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, name := range documents {
		files = append(files, filepath.Join(root, name))
	}
	for _, f := range sources(t) {
		files = append(files, f.at(f.Name).Filename)
	}
	files = slices.DeleteFunc(files, func(name string) bool { return filepath.Base(name) == "glossary.md" })
	var all strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// TestGlossaryTerms checks that errors in the form of a glossary are found.
func TestGlossaryTerms(t *testing.T) {
	terms, problems := glossaryTerms("# Glossary\n\nWords.\n\n- **BLS**: a format. [UAPI]\n- **booted**: it runs.\n")
	if !slices.Equal(terms, []string{"BLS", "booted"}) || len(problems) > 0 {
		t.Errorf("%q, %q", terms, problems)
	}
	for text, want := range map[string]string{
		"- **b**: x.\n- **A**: y.\n":    `"b" stands before "A"`,
		"- **a**: x.\n- **A**: y.\n":    `"a" stands before "A"`,
		"- **a**:\n":                    "no term with a sentence",
		"- a: x.\n":                     "no term with a sentence",
		"- **a**: x.\nand more of it\n": "explains no term",
		"":                              "there is no term",
	} {
		if _, problems := glossaryTerms(text); !slices.ContainsFunc(problems, func(p string) bool { return strings.Contains(p, want) }) {
			t.Errorf("%q: problems %q, want one with %q", text, problems, want)
		}
	}
}
