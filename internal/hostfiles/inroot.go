package hostfiles

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
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
	found, _, err := resolveIn(root, name)
	return found, err
}

// Locate is ResolveIn for a file of a host that need not exist, and may be where the started system has it. If root
// lacks what a link leads to in one of the directories that a start brings, Locate returns the path outside of root.
// Nothing else is outside.
func Locate(root, name string) (string, error) {
	if root = path.Clean(root); root == "/" {
		return path.Clean(name), nil // which may be relative to the working directory
	}
	found, lacks, err := resolveIn(root, name)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return found, err
	case lacks != path.Join("/", name) && broughtByStart(lacks):
		return lacks, nil
	}
	return path.Join(root, lacks), nil
}

// broughtByStart reports whether systemd moves the directory of a path from the initramfs into the started system
// (base_filesystem, switch-root.c). Until then it is empty below the system's root.
func broughtByStart(name string) bool {
	return slices.Contains([]string{"dev", "proc", "run", "sys"}, strings.Split(name, "/")[1])
}

// resolveIn is ResolveIn. If something does not exist, it also returns the path of that in root, with what was to follow.
func resolveIn(root, name string) (found, lacks string, err error) {
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
			return "", path.Join(append([]string{next}, todo...)...), err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", "", &fs.PathError{Op: "resolve", Path: name, Err: errors.New("too many links")}
		}
		target, err := os.Readlink(path.Join(root, next))
		if err != nil {
			return "", "", err
		}
		if path.IsAbs(target) {
			at = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return path.Join(root, at), "", nil
}
