package problem

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// OneLine makes one line of a message that libraries write in several. (What
// is quoted from the input has no line breaks left.)
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

// maxText bounds each text of a problem, in bytes.
const maxText = 500

// printable keeps text that may come from the input on its line of a report, and
// the line within bounds.
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

// Quoted is text from the input, safe to print and bounded.
func Quoted(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}
