package source

import (
	"regexp"

	"machine-pivot/internal/printable"
)

// urlSecrets matches the parts of a URL that grant access: user and password before the host,
// and the query, which has the signatures for storage behind a registry.
var urlSecrets = regexp.MustCompile(`(\w://)[^/\s"@]*@|(\w://[^\s"?]*\?)[^\s"]*`)

// redacted is an error of the library whose text is safe to show. The library puts whole URLs
// with passwords and signatures into its errors, and the text of a registry's response.
type redacted struct{ error }

func (r redacted) Error() string {
	return printable.Line(urlSecrets.ReplaceAllString(r.error.Error(), "$1$2…"))
}

func (r redacted) Unwrap() error { return r.error }
