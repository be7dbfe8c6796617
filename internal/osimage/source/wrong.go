package source

import (
	"errors"
	"io"
	"net/url"
	"regexp"

	"machine-pivot/internal/fault"
)

// wrong is an answer that is not what was asked for: another part, a web page, a body without end.
type wrong struct{ error }

// Unwrap returns what is wrong.
func (w wrong) Unwrap() error { return w.error }

// wrongAnswer returns the error of an answer that is not what was asked for. No network makes such an answer, so
// waiting for a better one is of little use. A layer is asked for at most maxWrong times in a row, and its parts once.
func wrongAnswer(format string, args ...any) *fault.Error {
	f := fault.New(fault.Unavailable, format, args...).WithHint("ask the registry with curl: does a proxy, a damaged cache or a login page answer in its place?")
	f.Err = wrong{f.Err}
	return f
}

// isWrong reports whether an error is that of a wrong answer.
func isWrong(err error) bool {
	_, is := errors.AsType[wrong](err)
	return is
}

// unlessHTTP returns a wrong answer for an error of net/http about what is no HTTP, such as a header or a chunk without end.
// These errors have no types. Others stay as they are.
func unlessHTTP(err error) error {
	inner := err
	if of, is := errors.AsType[*url.Error](err); is { // net.Error, whatever it is about
		inner = of.Err
	}
	if !isNetwork(inner) && noHTTP.MatchString(inner.Error()) {
		return wrongAnswer("the answer is no HTTP: %w", err)
	}
	return err
}

// noHTTP matches what net/http says of an answer.
var noHTTP = regexp.MustCompile(`malformed|chunk|header line too long|response headers exceeded|1xx`)

const (
	// maxWrong is how many wrong answers in a row end the download of a layer from an endpoint.
	maxWrong = 2
	// maxExtra is how many bytes an answer may have beyond what was asked for: headers of parts, a preamble.
	maxExtra = 1 << 20
)

// limited is the body of an answer. Every byte of it counts, also one that a parser skips: the body ends with a wrong
// answer maxExtra bytes after what was asked for.
type limited struct {
	io.ReadCloser
	left int64 // bytes that may still come
}

func limit(body io.ReadCloser, asked int64) io.ReadCloser {
	return &limited{body, asked + maxExtra}
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, wrongAnswer("the registry sends more than was asked for")
	}
	n, err := l.ReadCloser.Read(p[:min(int64(len(p)), l.left)])
	if l.left -= int64(n); err != nil && err != io.EOF {
		err = unlessHTTP(err)
	}
	return n, err
}
