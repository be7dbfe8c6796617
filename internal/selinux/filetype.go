package selinux

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// fileTypes are the types of files, as the kernel's mode has them and as Go's.
var fileTypes = [...]struct {
	unix uint32
	mode fs.FileMode
}{
	{unix.S_IFREG, 0}, {unix.S_IFDIR, fs.ModeDir}, {unix.S_IFLNK, fs.ModeSymlink},
	{unix.S_IFCHR, fs.ModeDevice | fs.ModeCharDevice}, {unix.S_IFBLK, fs.ModeDevice},
	{unix.S_IFIFO, fs.ModeNamedPipe}, {unix.S_IFSOCK, fs.ModeSocket},
}

// Type is the file type in a mode of the kernel (S_IFMT).
func Type(mode uint32) fs.FileMode {
	for _, t := range fileTypes {
		if t.unix == mode&unix.S_IFMT {
			return t.mode
		}
	}
	return fs.ModeIrregular
}

// unixType is the reverse of Type; 0 if there is no such type.
func unixType(mode fs.FileMode) uint32 {
	for _, t := range fileTypes {
		if t.mode == mode.Type() {
			return t.unix
		}
	}
	return 0
}
