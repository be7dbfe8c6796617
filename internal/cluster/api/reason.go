package api

import (
	"regexp"
	"strings"

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
	return Shortened(text, maxReason)
}

// Shortened returns a text, of a longer one the beginning, in at most a number of bytes.
func Shortened(text string, most int) string {
	const more = " …"
	if len(text) <= most {
		return text
	}
	return strings.TrimSpace(strings.ToValidUTF8(text[:most-len(more)], "")) + more
}
