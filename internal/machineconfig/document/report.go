// Package document reads JSON and YAML as one: text in, values out that know
// where they stand, and a report of everything that is wrong, each problem with
// file, line and JSON path. It is for configuration that people write: of what
// both formats can hold it takes only what no two readers could understand in two
// ways, and everything in it is bounded.
package document

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"machine-pivot/internal/fault"
)

// Severity says whether a problem makes a document unusable.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is one thing that is wrong.
type Problem struct {
	File     string   `json:"file,omitempty"` // or another name of what was read; "" if there is only one
	Line     int      `json:"line,omitempty"` // in the file, from 1; 0 if it is not known
	Path     string   `json:"path"`           // in the JSON, as $.spec.kernelArguments[2]
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
}

// String is FILE:LINE: SEVERITY: PATH: MESSAGE, as far as it is known.
func (p Problem) String() string {
	at := p.File
	if at != "" && p.Line > 0 {
		at += ":" + strconv.Itoa(p.Line)
	}
	if at != "" {
		at += ": "
	}
	return at + fmt.Sprintf("%s: %s: %s", p.Severity, p.Path, p.Message)
}

// Report is everything that is wrong with a document.
type Report []Problem

// Failed reports whether there is any error.
func (r Report) Failed() bool {
	for _, p := range r {
		if p.Severity == Error {
			return true
		}
	}
	return false
}

// String is a line for each problem.
func (r Report) String() string {
	lines := make([]string, len(r))
	for i, p := range r {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Err is the report as one error, with a line for each problem; nil if there is
// no error in it. What says what it is about, as "MachineConfig /etc/x.json".
func (r Report) Err(what string) error {
	if !r.Failed() {
		return nil
	}
	return fault.New(fault.BadInput, "cannot use %s:\n%s", what, r).
		WithHint("correct what the report names and try again; nothing was changed")
}

// Fail adds an error.
func (r *Report) Fail(path, format string, args ...any) {
	r.Add(Problem{Path: path, Severity: Error, Message: fmt.Sprintf(format, args...)})
}

// Warn adds a warning.
func (r *Report) Warn(path, format string, args ...any) {
	r.Add(Problem{Path: path, Severity: Warning, Message: fmt.Sprintf(format, args...)})
}

// maxProblems bounds a report: nobody reads more, and an input can be made of
// nothing but problems.
const maxProblems = 500

// Add adds a problem; its text is bounded and kept on its line.
func (r *Report) Add(p Problem) {
	switch n := len(*r); {
	case n > maxProblems:
		if last := &(*r)[n-1]; p.Severity == Error {
			last.Severity = Error
		}
		return
	case n == maxProblems:
		p = Problem{File: p.File, Path: "$", Severity: p.Severity, Message: "there are more problems; correct these first"}
	}
	p.Path, p.Message = oneLine(p.Path), oneLine(joinedLines(p.Message))
	*r = append(*r, p)
}

// joinedLines makes one line of a message that libraries write in several. (What
// is quoted from the input has no line breaks left.)
func joinedLines(message string) string {
	if !strings.Contains(message, "\n") {
		return message
	}
	var lines []string
	for line := range strings.Lines(message) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// maxText bounds a path or message of a report, in bytes.
const maxText = 500

// oneLine keeps text that may come from the input on its line of a report, and
// the line within bounds.
func oneLine(s string) string {
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
