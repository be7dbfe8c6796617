package source

import (
	"regexp"
	"strings"

	"machine-pivot/internal/printable"
)

// urls matches the URLs in a text, as far as a quote or a space.
var urls = regexp.MustCompile(`\w+://[^\s"]+`)

// redacted is an error of the library with a text that is safe to show. The library puts whole URLs with passwords and
// signatures into its errors, and the text of a registry's response.
type redacted struct {
	error
	host string // HOST[:PORT] of the registry
}

func (r redacted) Error() string {
	return printable.Line(urls.ReplaceAllStringFunc(r.error.Error(), func(url string) string { return safeURL(url, r.host) }))
}

func (r redacted) Unwrap() error { return r.error }

// safeURL returns a URL without the parts that can grant access: user and password, the fragment, and the query, which
// has signatures for a registry's storage. A path can grant access as well, so it stays only in the registry's own
// protocol. "docker:" is no protocol, but how the library writes the name of an image.
func safeURL(url, host string) string {
	scheme, rest, _ := strings.Cut(url, "://")
	end := len(rest)
	if n := strings.IndexAny(rest, "/?#"); n >= 0 {
		end = n
	}
	authority, rest := rest[strings.LastIndexByte(rest[:end], '@')+1:end], rest[end:]
	path, marks := rest, ""
	if n := strings.IndexAny(rest, "?#"); n >= 0 {
		path, marks = rest[:n], rest[n:n+1]+"…"
	}
	protocol := scheme == "docker" || authority == host && (path == "/v2" || strings.HasPrefix(path, "/v2/"))
	if !protocol && strings.Trim(path, "/:;,.)") != "" {
		path = "/…"
	}
	return scheme + "://" + authority + path + marks
}
