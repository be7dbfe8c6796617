// Package imagefault has the failures that all parts of package osimage know:
// of an image that is damaged, and of a disk that takes no more. Both are
// permanent. What a registry answers is not here but in package source.
package imagefault

import (
	"errors"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
)

// Damaged is an error of an image whose content is not what it should be, from a
// format as in fmt.Errorf.
func Damaged(format string, args ...any) *fault.Error {
	return fault.New(fault.BadInput, format, args...).WithHint("the image is damaged; push it again")
}

// CannotWrite knows a full or read-only disk; of other errors it is nil.
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
