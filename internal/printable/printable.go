// Package printable makes untrusted text safe to print: registry responses, file names, image
// metadata. Such text can move a terminal's cursor, hide what precedes it, or start a line that
// looks like one of ours.
//
// Characters that are not printable are escaped as in Go strings: \n, \x1b, \u202e, and \xff
// for a byte that is not valid UTF-8. The result is meant for people, not for programs:
// backslashes are not escaped, so the original cannot be restored. Printable text is unchanged,
// so the functions are idempotent.
package printable

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Line escapes text for one line. It escapes control characters including line feeds, characters that only control the
// display of others (such as of bidirectional text), blanks other than the space, and invalid UTF-8.
func Line(text string) string { return escaped(text, inText) }

// Text is Line for text of several lines: it keeps line feeds. Lines after the first are
// indented unless they already are, so that none of them looks like a line of ours.
func Text(text string) string {
	var b strings.Builder
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if i > 0 {
			b.WriteByte('\n')
			if !strings.HasPrefix(line, " ") {
				b.WriteString("  ")
			}
		}
		b.WriteString(Line(line))
	}
	return b.String()
}

// JSON escapes what Line escapes in a JSON document, with JSON escapes, so that a program reads
// the same values. Line feeds are kept; in JSON they occur only between values.
func JSON(document []byte) []byte {
	return []byte(escaped(string(document), inJSON))
}

// YAML escapes what Line escapes in a YAML document, with YAML escapes, so that a program reads
// the same values. YAML has escapes in double-quoted strings only, so such characters must not
// occur elsewhere.
func YAML(document []byte) []byte {
	return []byte(escaped(string(document), inYAML))
}

// Writer returns a writer that escapes everything except line feeds and writes the result to w.
// No character may be split between two calls of Write.
func Writer(w io.Writer) io.Writer { return escapingWriter{w} }

type escapingWriter struct{ w io.Writer }

// Write implements io.Writer.
func (w escapingWriter) Write(p []byte) (int, error) {
	var b bytes.Buffer
	for line := range bytes.Lines(p) {
		text, feed := bytes.CutSuffix(line, []byte("\n"))
		b.WriteString(Line(string(text)))
		if feed {
			b.WriteByte('\n')
		}
	}
	if _, err := w.w.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// escaped replaces each character that is not printable by the result of escape. For a byte
// that is not valid UTF-8, r is utf8.RuneError. raw is the original text of the character or
// byte.
func escaped(text string, escape func(r rune, raw string) string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if valid := r != utf8.RuneError || n > 1; valid && strconv.IsPrint(r) {
			b.WriteString(text[:n])
		} else {
			b.WriteString(escape(r, text[:n]))
		}
		text = text[n:]
	}
	return b.String()
}

func inText(_ rune, raw string) string {
	quoted := strconv.Quote(raw)
	return quoted[1 : len(quoted)-1]
}

func inJSON(r rune, raw string) string {
	if raw == "\n" {
		return raw
	}
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

func inYAML(r rune, raw string) string {
	switch {
	case raw == "\n":
		return raw
	case r > 0xffff:
		return fmt.Sprintf(`\U%08x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}
