package source

import (
	"regexp"

	"machine-pivot/internal/printable"
)

// urlSecrets are the parts of a URL that grant access: a password in front of the
// host, and the query, in which storage behind a registry gets its signatures.
var urlSecrets = regexp.MustCompile(`(\w://)[^/\s"@]*@|(\w://[^\s"?]*\?)[^\s"]*`)

// redacted is an error of the library whose text may be shown. The library puts whole URLs
// into its errors, with passwords and signatures, and the text of a registry's answer.
type redacted struct{ error }

func (r redacted) Error() string {
	return printable.Line(urlSecrets.ReplaceAllString(r.error.Error(), "$1$2…"))
}

func (r redacted) Unwrap() error { return r.error }
