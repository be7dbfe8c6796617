package problem

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
)

// Report lists all problems of an input.
type Report []Problem

// Failed reports whether there is an error.
func (r Report) Failed() bool {
	return slices.ContainsFunc(r, func(p Problem) bool { return p.Severity == Error })
}

// Errors returns the report without warnings.
func (r Report) Errors() Report {
	return slices.DeleteFunc(slices.Clone(r), func(p Problem) bool { return p.Severity != Error })
}

// As returns the report with one severity for all of its problems.
func (r Report) As(severity Severity) Report {
	return r.with(func(p *Problem) { p.Severity = severity })
}

// with returns a report with each problem changed.
func (r Report) with(change func(*Problem)) Report {
	all := slices.Clone(r)
	for i := range all {
		change(&all[i])
	}
	return all
}

// String returns one line for each problem.
func (r Report) String() string {
	lines := make([]string, len(r))
	for i, p := range r {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// MarshalJSON returns an array, which is empty, not null, if there are no problems.
func (r Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(append([]Problem{}, r...))
}

// Err returns the report as one error with a line for each problem; nil if the report has not
// failed. what names the input, such as "MachineConfig /etc/x.json". The error is of kind
// Unreconcilable if the input is valid and only changes are not possible, otherwise BadInput. It
// wraps an Unusable.
func (r Report) Err(what string) error {
	if !r.Failed() {
		return nil
	}
	err := &Unusable{what, r}
	if slices.ContainsFunc(r, func(p Problem) bool { return p.Severity == Error && p.Change == nil }) {
		return fault.New(fault.BadInput, "%w", err).WithHint("correct what the report names in %s, and try again; nothing was changed", what)
	}
	return fault.New(fault.Unreconcilable, "%w", err).
		WithHint("leave what the report names as the machine has it, apply the rest with --unsupported=warn, or install the machine anew; nothing was changed")
}

// Unusable is the error of an input with problems.
type Unusable struct {
	what   string
	Report Report
}

// Error implements error. The text has a line for each problem.
func (u *Unusable) Error() string { return fmt.Sprintf("cannot use %s:\n%s", u.what, u.Report) }

// Fail adds an error.
func (r *Report) Fail(path, format string, args ...any) { r.Add(Errorf(path, format, args...)) }

// Warn adds a warning.
func (r *Report) Warn(path, format string, args ...any) { r.Add(Warningf(path, format, args...)) }

// maxProblems bounds a report, since a hostile input can have any number of problems.
const maxProblems = 500

// Add adds problems. It limits each text in length and to one line.
func (r *Report) Add(problems ...Problem) {
	for _, p := range problems {
		r.append(p)
	}
}

func (r *Report) append(p Problem) {
	switch n := len(*r); {
	case n > maxProblems:
		if last := &(*r)[n-1]; p.Severity == Error {
			last.Severity = Error
		}
		return
	case n == maxProblems:
		p = Problem{File: p.File, Path: "$", Severity: p.Severity, Message: "there are more problems", Hint: "correct these first"}
	}
	p.Path, p.Message, p.Hint = printable(p.Path), printable(OneLine(p.Message)), printable(p.Hint)
	*r = append(*r, p)
}

// Below converts the report of a part, with paths relative to the part, to a report of the whole. path is the part's
// path.
func (r Report) Below(path string) Report {
	return r.with(func(p *Problem) { p.Path = path + p.Path })
}

// In returns the report with a file name for all problems.
func (r Report) In(file string) Report { return r.with(func(p *Problem) { p.File = file }) }
