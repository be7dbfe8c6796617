package source

import (
	"regexp"

	"machine-pivot/internal/printable"
)

// urlSecrets are the parts of a URL that grant access: a password in front of the
// host, and the query, in which storage behind a registry gets its signatures.
var urlSecrets = regexp.MustCompile(`(\w://)[^/\s"@]*@|(\w://[^\s"?]*\?)[^\s"]*`)

// redacted is an error of the library's whose text is fit to be shown. The library
// puts whole URLs into it, also with what grants access to them, and what the
// registry answered, which can be anything.
type redacted struct{ error }

func (r redacted) Error() string {
	return printable.Line(urlSecrets.ReplaceAllString(r.error.Error(), "$1$2…"))
}

func (r redacted) Unwrap() error { return r.error }
