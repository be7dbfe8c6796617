// Package problem is the common form of findings about an input, used by all checks of
// MachineConfigs, Ignition configs, kernel arguments and the files of CPU partitioning. A
// Problem is one finding, a Report all findings about an input.
package problem

import (
	"encoding/json"
	"fmt"
)

// Severity says whether a problem makes the input unusable.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is one thing that is wrong with an input. Its JSON is part of the output of
// the programs.
type Problem struct {
	File string `json:"file,omitempty"` // or another name of the input; "" if there is only one input
	Line int    `json:"line,omitempty"` // in the input, from 1; 0 if unknown
	// Column is a byte offset in the line, from 1; 0 if unknown. Syntax errors have one, since
	// no path leads to them.
	Column int `json:"column,omitempty"`
	// Path says what in the input is wrong: a JSON path such as $.spec.kernelArguments[2] in a
	// document, the path of a file on a machine, or the kernel argument itself.
	Path     string   `json:"path"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"` // what a person can do about it
	// Change is what the input changes, if the input is valid and only the change is not possible;
	// otherwise nil.
	Change *Change `json:"change,omitempty"`
}

// Change is a setting that differs between two versions of an input.
type Change struct {
	Field string          `json:"field"` // such as config.storage.disks
	Old   json.RawMessage `json:"old"`   // null if it was absent
	New   json.RawMessage `json:"new"`   // null if it is absent
}

// Errorf returns an error at a path. The format is as in fmt.Sprintf.
func Errorf(path, format string, args ...any) Problem {
	return Problem{Path: path, Severity: Error, Message: fmt.Sprintf(format, args...)}
}

// Warningf returns a warning at a path. The format is as in fmt.Sprintf.
func Warningf(path, format string, args ...any) Problem {
	p := Errorf(path, format, args...)
	p.Severity = Warning
	return p
}

// WithHint returns the problem with a hint.
func (p Problem) WithHint(hint string) Problem {
	p.Hint = hint
	return p
}

// Within converts a problem of a part for the report of the whole. path is the part's, and prefix, before the message,
// says where in the part the problem is.
func (p Problem) Within(path, prefix string) Problem {
	return Problem{Path: path, Severity: p.Severity, Message: prefix + p.Message, Hint: p.Hint, Change: p.Change}
}

// String returns POSITION: SEVERITY: TEXT. The position is FILE:LINE:COLUMN as compilers write
// it, or words if there is no file name.
func (p Problem) String() string {
	if at := p.position(); at != "" {
		return at + ": " + string(p.Severity) + ": " + p.Text()
	}
	return string(p.Severity) + ": " + p.Text()
}

// Text returns PATH: MESSAGE; HINT, without severity and position. It is for output that shows
// these in another way, such as the notes of a run.
func (p Problem) Text() string {
	text := p.Message
	if p.Path != "" {
		text = p.Path + ": " + text
	}
	if p.Hint != "" {
		text += "; " + p.Hint
	}
	return text
}

// position returns the known part of the position.
func (p Problem) position() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.File == "" && p.Column == 0:
		return fmt.Sprintf("line %d", p.Line)
	case p.File == "":
		return fmt.Sprintf("line %d, column %d", p.Line, p.Column)
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}
