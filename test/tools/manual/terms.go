package manual

import (
	"fmt"
	"strings"
)

// The lines of a page that enclose the terms.
const (
	beginTerms = ".\\\" The terms are those of docs/glossary.md: UPDATE_GOLDEN=1 go test -run TestTerms ./cmd/pivot\n"
	endTerms   = ".\\\" The terms end here.\n"
)

// Terms returns a page with the project's own words, from the glossary. So whoever reads a message on a machine finds
// there each word that no other project explains.
func Terms(page, glossary string) (string, error) {
	own, _, ok := strings.Cut(glossary, "\n## Words of other projects\n")
	parts := strings.Split(own, "\n- **")[1:]
	if !ok || len(parts) == 0 {
		return "", fmt.Errorf("the glossary has no words of this project")
	}
	var b strings.Builder
	b.WriteString(".Bl -tag -width Ds\n")
	for _, part := range parts {
		word, text, ok := strings.Cut(part, "**: ")
		if !ok {
			return "", fmt.Errorf("the glossary has a word without a meaning: %q", part)
		}
		fmt.Fprintf(&b, ".It %s\n", escaped(word))
		text = strings.NewReplacer("`", "", "*", "").Replace(strings.TrimSpace(text))
		paragraph(&b, strings.ToUpper(text[:1])+text[1:])
	}
	b.WriteString(".El\n")
	return replace(page, beginTerms, endTerms, b.String())
}
