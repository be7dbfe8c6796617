package source

import "regexp"

// urlSecrets are the parts of a URL that grant access: a password in front of the
// host, and the query, in which storage behind a registry gets its signatures.
var urlSecrets = regexp.MustCompile(`(\w://)[^/\s"@]*@|(\w://[^\s"?]*\?)[^\s"]*`)

// redacted is an error whose text names URLs without what grants access to them.
// The library puts the whole URL into its errors, and ours go to the journal.
type redacted struct{ error }

func (r redacted) Error() string {
	return urlSecrets.ReplaceAllString(r.error.Error(), "$1$2…")
}

func (r redacted) Unwrap() error { return r.error }

func redact(err error) error {
	if urlSecrets.MatchString(err.Error()) {
		return redacted{err}
	}
	return err
}
