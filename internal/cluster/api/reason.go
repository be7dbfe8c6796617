package api

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"machine-pivot/internal/printable"
)

// maxReason is the maximum length of a reason in bytes. The operator cuts its own at the same number of
// characters.
const maxReason = 2000

// userinfo matches a user or a password in a URL, which an error of another program may contain.
var userinfo = regexp.MustCompile(`://[^/\s@]+@`)

// BoundedReason returns a text for an annotation, an event or a condition: on one line, printable, at
// most maxReason bytes long, and without credentials of URLs.
func BoundedReason(text string) string {
	text = printable.Line(userinfo.ReplaceAllString(text, "://"))
	if len(text) <= maxReason {
		return text
	}
	const more = " …"
	cut := maxReason - len(more)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return strings.TrimSpace(text[:cut]) + more
}
