// Package machineconfig reads MachineConfigs: bytes in, the desired state out, or
// a report of everything that is wrong, each problem with its JSON path. What is
// not implemented is refused by name, never skipped.
//
// Sources: the MachineConfig type of the OpenShift API, the machine-config
// server's way to write the encapsulated file, and Ignition's own parser and
// validation for what is in spec.config. The package does no I/O.
package machineconfig

import (
	"fmt"
	"strings"
	"unicode"

	"machine-pivot/fault"
)

// Severity says whether a problem makes a MachineConfig unusable.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is one thing that is wrong.
type Problem struct {
	Path     string // in the JSON, as $.spec.kernelArguments[2]
	Severity Severity
	Message  string
}

// Report is everything that is wrong with a MachineConfig.
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
		lines[i] = fmt.Sprintf("%s: %s: %s", p.Severity, p.Path, p.Message)
	}
	return strings.Join(lines, "\n")
}

// Err is the report as one error, with a line for each problem; nil if there is no error in it.
func (r Report) Err(name string) error {
	if !r.Failed() {
		return nil
	}
	return fault.New(fault.BadInput, "cannot use MachineConfig %s:\n%s", name, r).
		WithHint("correct what the report names and start the unit again; nothing was changed")
}

func (r *Report) fail(path, format string, args ...any) {
	*r = append(*r, Problem{oneLine(path), Error, oneLine(fmt.Sprintf(format, args...))})
}

func (r *Report) warn(path, format string, args ...any) {
	*r = append(*r, Problem{oneLine(path), Warning, oneLine(fmt.Sprintf(format, args...))})
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
