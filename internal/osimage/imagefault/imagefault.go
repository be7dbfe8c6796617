// Package imagefault defines the failures that all packages of osimage report: an image that is
// damaged or too large, and a disk that is full or read-only. All are permanent. The responses of a
// registry are classified in package source.
package imagefault

import (
	"errors"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
)

// Damaged returns an error for bytes that are not those that the image's digests name. Another copy of them cures that.
// The format is that of fmt.Errorf.
func Damaged(format string, args ...any) *fault.Error {
	return fault.New(fault.BadInput, format, args...).WithHint("the image is damaged; push it again, or copy it again if it is in a file, for example with skopeo copy")
}

// Misbuilt returns an error for content that no host can have, or that contradicts itself. All copies have it, so
// only another build cures it. The format is that of fmt.Errorf.
func Misbuilt(format string, args ...any) *fault.Error {
	return fault.New(fault.BadInput, format, args...).WithHint("every copy of the image has this: correct how it is built, try it with pivot image check, and push the new image")
}

// TooLarge returns an error for an image that may be whole, but is beyond a limit of the import
// (docs/dev/import.md). The format is that of fmt.Errorf.
func TooLarge(format string, args ...any) *fault.Error {
	e := fault.New(fault.BadInput, format, args...).WithHint("build the image with less in it; the limits are in pivot's docs/dev/import.md")
	e.Err = Final(e.Err)
	return e
}

// final is an error that another copy of the image cannot cure.
type final struct{ error }

// Unwrap returns the underlying error.
func (f final) Unwrap() error { return f.error }

// Final marks an error that another copy of the same bytes has, too: one of this machine, of its
// signature policy, or of a limit of the import. So the image is tried at no other endpoint, and a layer
// that was read by parts is not read whole. nil stays nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return final{err}
}

// IsFinal reports whether an error was marked with Final.
func IsFinal(err error) bool {
	_, is := errors.AsType[final](err)
	return is
}

// CannotWrite returns an error for a full or read-only disk, or nil for any other error.
func CannotWrite(err error) *fault.Error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.New(fault.CannotWrite, "%w", err).
			WithHint("free space on the repository's file system, for example with ostree admin cleanup")
	case errors.Is(err, unix.EROFS):
		return fault.New(fault.CannotWrite, "%w", err).WithHint("mount the file system of the repository read-write (mount -o remount,rw)")
	}
	return nil
}
