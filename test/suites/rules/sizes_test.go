package rules

import (
	"go/ast"
	"go/token"
	"regexp"
	"testing"
)

// ownSize matches a format that shows an amount of data without printable.Size.
var ownSize = regexp.MustCompile(`%[0-9.]*[dfgv] ?([kMGTP]B\b|bytes (free|fetched|written|left)\b)`)

// TestSizes (D112): amounts of data are shown by printable.Size only. Limits of an input may be
// exact.
func TestSizes(t *testing.T) {
	for _, f := range sources(t) {
		ast.Inspect(f.File, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING && ownSize.MatchString(text.Value) {
				t.Errorf("%s: %s: use printable.Size", f.at(n), text.Value)
			}
			return true
		})
	}
	for text, own := range map[string]bool{"%.1f MB": true, "%d bytes free": true, "%s free": false, "more than %d bytes": false, "%d MiB": false} {
		if ownSize.MatchString(text) != own {
			t.Errorf("%q: taken for the opposite", text)
		}
	}
}
