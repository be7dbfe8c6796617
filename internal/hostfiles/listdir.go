package hostfiles

import (
	"io/fs"
	"path"
)

// EachName calls f for each name in a directory below root, in no order, until f fails. Links are
// followed as by Read. A directory that is gone has no names.
func EachName(root, dir string, f func(name string) error) error {
	at, err := OpenDir(root, path.Join(dir, "name"), FollowRoots)
	if unreachable(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer at.Close()
	return at.each(func(entry fs.DirEntry) error { return f(entry.Name()) })
}
