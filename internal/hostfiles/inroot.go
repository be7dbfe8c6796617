package hostfiles

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
)

// maxLinks is how many links the kernel follows in one name (path_resolution(7)).
const maxLinks = 40

// ResolveIn is the path of what a program that had root as its "/" would find at
// name, all links followed: none leads out of root. A name that is not there is
// fs.ErrNotExist.
//
// By hand, not by openat2(2), which old boot images' kernels lack. Nobody else
// changes the tree meanwhile.
func ResolveIn(root, name string) (string, error) {
	at, todo := "/", strings.Split(name, "/")
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		next := path.Join(at, part) // ".." of "/" is "/"
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
