package hostfiles

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
)

// maxLinks is the number of symbolic links that the kernel follows in a path
// (path_resolution(7)).
const maxLinks = 40

// ResolveIn resolves name as if root were "/", following all symbolic links, and
// returns the resulting path below root. No link can escape from root. If name does not
// exist, the error is an fs.ErrNotExist.
//
// It does not use openat2(2), because the kernels of old boot images do not have it. The
// tree must not be changed concurrently.
func ResolveIn(root, name string) (string, error) {
	at, todo := "/", strings.Split(name, "/")
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		next := path.Join(at, part) // ".." of "/" is "/"
		if next == "/" {
			at = next // root itself may be a link
			continue
		}
		info, err := os.Lstat(path.Join(root, next))
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "resolve", Path: name, Err: errors.New("too many links")}
		}
		target, err := os.Readlink(path.Join(root, next))
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			at = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return path.Join(root, at), nil
}
