// Package imagefault defines the failures that all packages of osimage report: a damaged
// image, and a disk that is full or read-only. Both are permanent. The responses of a registry
// are classified in package source.
package imagefault

import (
	"errors"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
)

// Damaged returns an error for an image with wrong content. The format is that of fmt.Errorf.
func Damaged(format string, args ...any) *fault.Error {
	return fault.New(fault.BadInput, format, args...).WithHint("the image is damaged; push it again")
}

// CannotWrite returns an error for a full or read-only disk, or nil for any other error.
func CannotWrite(err error) *fault.Error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.New(fault.CannotWrite, "%w", err).
			WithHint("free space on the repository's file system, for example with ostree admin cleanup")
	case errors.Is(err, unix.EROFS):
		return fault.New(fault.CannotWrite, "%w", err).WithHint("the repository's file system is mounted read-only")
	}
	return nil
}
