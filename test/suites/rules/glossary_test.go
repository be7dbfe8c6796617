package rules

import (
	"regexp"
	"strings"
	"testing"

	"machine-pivot/test/suites/docs"
)

// coined are the words to which this project gives a meaning of its own, as its documents use them. A
// reader can know them only from the glossary. Use the field's term before you add one.
var coined = []string{
	"drift", "left out", "preflight", "project", "record", "repair", "slot", "step aside", "target", "transaction", "trial",
}

// fieldTerms are words that were the project's own, with the terms that the documents for users have instead.
var fieldTerms = map[string]string{
	"adopt": "take over", "stamp": "file", "wish": "request", "taken back": "reverted", "failover": "the next mirror",
}

// TestGlossary checks that docs/glossary.md explains each word of ours that another document uses.
func TestGlossary(t *testing.T) {
	explained := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^- \*\*([^*]+)\*\*: `).FindAllStringSubmatch(readText(t, "docs/glossary.md"), -1) {
		explained[m[1]] = true
	}
	own, _, _ := strings.Cut(readText(t, "docs/glossary.md"), "\n## Words of other projects\n")
	if n := strings.Count(own, "\n- **"); len(explained) < 40 || n < 5 || n > 20 {
		t.Fatalf("%d words of ours, at most 20 are allowed, and %d in all", n, len(explained))
	}
	word := regexp.MustCompile(`\b(?:` + strings.Join(coined, "|") + `)`)
	for _, path := range documents(t) {
		for _, part := range docs.Parse(readText(t, path)) {
			for ours, term := range fieldTerms {
				if part.Block == nil && !strings.HasPrefix(path, "docs/dev/") && regexp.MustCompile(`(?i)\b`+ours).MatchString(withoutCode(part.Text)) {
					t.Errorf("%s:%d: %q is a word of ours: say %q", path, part.Line, ours, term)
				}
			}
			for _, used := range word.FindAllString(strings.ToLower(withoutCode(part.Text)), -1) {
				if part.Block == nil && !explained[used] && path != "docs/glossary.md" {
					t.Errorf("%s:%d: docs/glossary.md does not explain %q", path, part.Line, used)
					explained[used] = true // once is enough
				}
			}
		}
	}
}
