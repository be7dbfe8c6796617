package problem

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// OneLine joins the lines of a library's message. Text quoted from the input must already be
// without line breaks.
func OneLine(message string) string {
	if !strings.Contains(message, "\n") {
		return message
	}
	var b strings.Builder
	for line := range strings.Lines(message) {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			continue
		case strings.HasSuffix(b.String(), ":"): // a heading
			b.WriteByte(' ')
		case b.Len() > 0:
			b.WriteString("; ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// maxText limits each text of a problem, in bytes.
const maxText = 500

// printable makes text that may come from the input safe for one line of a report: it escapes
// unprintable characters and truncates the text to about maxText.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= maxText {
			b.WriteString("…")
			break
		}
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}

// Quoted quotes text from the input. The result is printable and bounded.
func Quoted(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}
