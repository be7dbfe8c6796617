// Package printable makes text of others fit to be shown: what a registry answers,
// a file is named, or an image says of itself. Such text can move a terminal's
// cursor, hide what stands before it, or begin a line that looks like one of ours.
//
// What is not printable is written as Go writes it in strings: \n, \x1b, \u202e,
// and \xff for a byte that is no UTF-8. That is for readers, not for programs: a
// backslash stays as it is, so the text cannot be taken back to what it was. Text
// that is printable, the result of these functions among it, stays as it is.
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

// Line is text on one line: control characters (line feeds among them), characters
// that only direct how others are shown, as those of bidirectional text, blanks
// other than the space, and bytes that are no UTF-8 are escaped.
func Line(text string) string { return escaped(text, inText) }

// Text is Line for text of several lines: it keeps line feeds. The lines after the
// first are indented, if they are not yet, so that none of them looks like a
// line of its own.
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

// JSON is a JSON document, the same to a program, in which whatever Line escapes is
// escaped as JSON does it. Its line feeds, which stand between values, are kept.
func JSON(document []byte) []byte {
	return []byte(escaped(string(document), inJSON))
}

// YAML is a YAML document, the same to a program, in which whatever Line escapes is
// escaped as YAML does it, which is in double quotes only: texts with such characters
// must stand in them.
func YAML(document []byte) []byte {
	return []byte(escaped(string(document), inYAML))
}

// Writer escapes what is written to w, but for line feeds. Each Write is taken for
// whole characters.
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

// escaped replaces what is not printable by what escape makes of it: of a character,
// or of a byte that is part of none, whose r is utf8.RuneError; raw is how it stands there.
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
