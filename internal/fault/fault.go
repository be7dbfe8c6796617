// Package fault classifies errors. The kind of an error determines the exit status and
// whether trying again can help; a hint says what a person can do about it.
package fault

import (
	"context"
	"errors"
	"fmt"
)

// Kind is the class of a failure.
type Kind int

// The kinds, each with its exit status (sysexits.h where it has a fitting one).
const (
	// Internal is anything not classified: a defect or an unforeseen failure. Exit 1.
	Internal Kind = iota
	// Usage is a wrong command line. Exit 64.
	Usage
	// BadInput is bad input data: a MachineConfig or the content of an image. Exit 65.
	BadInput
	// Unavailable is a service or registry that does not answer (now). Exit 69. The only transient kind.
	Unavailable
	// CannotWrite is no space, or a read-only target. Exit 73.
	CannotWrite
	// Refused is permanent: policy, FIPS mismatch, unsupported host. Exit 78.
	Refused
	// Later is for work that is not possible in the initramfs, but in the started system:
	// the initramfs then steps aside, which is no failure. Elsewhere exit 1.
	Later
	// Replace is for a machine that cannot become what is asked for, and must be replaced by
	// one that is installed so. Exit 79.
	Replace
)

// ExitStatus is the process exit status that stands for k.
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
	}
	return 1
}

// Transient reports whether trying the same again can succeed.
func (k Kind) Transient() bool { return k == Unavailable }

// Error is an error of a known kind, with a hint for the person who reads it.
type Error struct {
	Kind Kind
	Hint string // what to do about it; may be empty
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// New makes an error of kind k from a format as in fmt.Errorf.
func New(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// WithHint sets what a person can do about the error, and returns it.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// KindOf is the kind of the outermost classified error in err's chain.
// A cancelled or timed-out context without one counts as Unavailable, since trying again
// can help.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Unavailable
	}
	return Internal
}

// HintOf is the first hint in err's chain, or "".
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
