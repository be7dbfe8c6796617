package hostfiles

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// namesAtOnce is the number of names that EachName reads at a time.
const namesAtOnce = 256

// EachName calls f for each name in a directory below root, in no order, until f fails. Links are
// followed as by Read. The names are not read into memory at once: a user may make any number of
// them. A directory that is gone has no names.
func EachName(root, dir string, f func(name string) error) error {
	at, err := OpenDir(root, path.Join(dir, "name"), FollowRoots)
	var names *os.File
	if err == nil {
		names, err = os.Open(at.Path())
		err = errors.Join(err, at.Close())
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, ErrLink) {
		return nil
	}
	if err != nil {
		return err
	}
	defer names.Close()
	for {
		some, err := names.Readdirnames(namesAtOnce)
		for _, name := range some {
			if err := f(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
