package ostree

import (
	"bytes"
	"errors"
	"io/fs"
)

// ReadFile reads a file by its name. If it does not exist, the error is an fs.ErrNotExist.
type ReadFile func(name string) ([]byte, error)

// MergeFile reads a file of the /etc that a new deployment will have after libostree's
// merge. now reads the running system's /etc, before the /etc of the running image, and next
// the /etc of the new image. If now and before differ, the running system's file is kept;
// otherwise the new image's file is used.
func MergeFile(name string, now, before, next ReadFile) ([]byte, error) {
	have, err := now(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	had, berr := before(name)
	if berr != nil && !errors.Is(berr, fs.ErrNotExist) {
		return nil, berr
	}
	if (err == nil) == (berr == nil) && bytes.Equal(have, had) {
		return next(name)
	}
	return have, err
}
