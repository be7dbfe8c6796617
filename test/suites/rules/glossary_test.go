package rules

import (
	"regexp"
	"strings"
	"testing"

	"machine-pivot/test/suites/docs"
)

// coined are the words to which this project gives a meaning of its own, as its documents use them. A
// reader can know them only from the glossary. Add each new one.
var coined = []string{
	"adopt", "carry", "drift", "engine", "left out", "phase", "preflight", "project", "record", "repair", "slot", "stamp", "step aside", "taken back",
	"target", "transaction", "trial", "window", "wish",
}

// TestGlossary checks that docs/glossary.md explains each word of ours that another document uses.
func TestGlossary(t *testing.T) {
	explained := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^- \*\*([^*]+)\*\*: `).FindAllStringSubmatch(readText(t, "docs/glossary.md"), -1) {
		explained[m[1]] = true
	}
	if len(explained) < 50 {
		t.Fatalf("only the terms %v", explained)
	}
	word := regexp.MustCompile(`\b(?:` + strings.Join(coined, "|") + `)`)
	for _, path := range documents(t) {
		for _, part := range docs.Parse(readText(t, path)) {
			for _, used := range word.FindAllString(strings.ToLower(withoutCode(part.Text)), -1) {
				if part.Block == nil && !explained[used] && path != "docs/glossary.md" {
					t.Errorf("%s:%d: docs/glossary.md does not explain %q", path, part.Line, used)
					explained[used] = true // once is enough
				}
			}
		}
	}
}
