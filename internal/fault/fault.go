// Package fault classifies errors. The kind of an error determines the exit status and whether a
// retry can help; a hint says what a person can do about it.
package fault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Kind is the class of a failure.
type Kind int

// The kinds, with their exit statuses (from sysexits.h where one fits).
const (
	// Internal is anything not classified: a defect or an unexpected failure. Exit 1.
	Internal Kind = iota
	// Usage is a wrong command line. Exit 64.
	Usage
	// BadInput is bad input data: a MachineConfig or the content of an image. Exit 65.
	BadInput
	// Unavailable is a service or registry that does not answer now. Exit 69. Transient.
	Unavailable
	// CannotWrite is a full or read-only file system. Exit 73.
	CannotWrite
	// Refused is a permanent refusal: policy, FIPS mismatch, unsupported host. Exit 78.
	Refused
	// Later is for work that is only possible in the started system, not in the initramfs. The
	// initramfs then steps aside, which is not a failure. Elsewhere exit 1.
	Later
	// Replace is for a machine that cannot reach its target and must be replaced by a newly
	// installed one. Exit 79.
	Replace
	// Unreconcilable is a MachineConfig that is valid, and changes what only an installation can
	// change. Exit 80.
	Unreconcilable
	// Interrupted is a run that a person has ended with ^C. Exit 130, as of shells. Transient.
	Interrupted
)

// ExitStatus returns the process exit status for k.
func (k Kind) ExitStatus() int {
	switch k {
	case Usage:
		return 64
	case BadInput:
		return 65
	case Unavailable:
		return 69
	case CannotWrite:
		return 73
	case Refused:
		return 78
	case Replace:
		return 79
	case Unreconcilable:
		return 80
	case Interrupted:
		return 130
	}
	return 1
}

// String returns the kind's name in documents for programs; the names are stable.
func (k Kind) String() string {
	switch k {
	case Usage:
		return "usage"
	case BadInput:
		return "input"
	case Unavailable:
		return "unavailable"
	case CannotWrite:
		return "write"
	case Refused:
		return "refused"
	case Later:
		return "later"
	case Replace:
		return "replace"
	case Unreconcilable:
		return "unreconcilable"
	case Interrupted:
		return "interrupted"
	}
	return "internal"
}

// Transient reports whether a retry can succeed.
func (k Kind) Transient() bool { return k == Unavailable || k == Interrupted }

// Error is an error of a known kind, with a hint for the person who reads it.
type Error struct {
	Kind Kind
	Hint string // what to do about it; may be empty
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// New returns an error of kind k. The format is as in fmt.Errorf.
func New(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// WithHint sets the hint, which says what a person can do about the error, and returns e.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// KindOf returns the kind of the outermost classified error in err's chain; of an error that ^C has
// caused, Interrupted. An unclassified error of a context that has ended counts as Unavailable,
// since a retry can help.
func KindOf(err error) Kind {
	stopped, signaled := errors.AsType[Stopped](err)
	if signaled && stopped.kind() == Interrupted {
		return Interrupted
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	if signaled {
		return stopped.kind()
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Unavailable
	}
	return Internal
}

// HintOf returns the first hint in err's chain, or "".
func HintOf(err error) string {
	for err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}

// Join returns one error for several that are independent of each other, of which some may be nil. It has
// the kind of the first one, and the first hint.
func Join(errs ...error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	if len(errs) == 1 {
		return errs[0]
	}
	joined := New(KindOf(errs[0]), "%w", errors.Join(errs...))
	for _, err := range errs {
		joined.Hint = cmp.Or(joined.Hint, HintOf(err))
	}
	return joined
}

// WithRemedy returns an error with its hint, if it has one, as one text for people.
func WithRemedy(err error) string {
	if hint := HintOf(err); hint != "" {
		return err.Error() + "; " + hint
	}
	return err.Error()
}
