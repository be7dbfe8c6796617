package ostree

import (
	"bytes"
	"errors"
	"io/fs"
)

// ReadFile reads a file by its name; one that is not there is an fs.ErrNotExist.
type ReadFile func(name string) ([]byte, error)

// MergeFile reads a file of the /etc that a new deployment will have, as libostree
// merges it: what the running system has, now, if that differs from what its image has
// there, before; else what the new image has, next.
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
