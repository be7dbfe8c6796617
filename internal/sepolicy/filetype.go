package sepolicy

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// fileTypes maps the kernel's file types (S_IFMT) to Go's, and to the flags of file_contexts(5).
var fileTypes = [...]struct {
	unix uint32
	mode fs.FileMode
	flag string
}{
	{unix.S_IFREG, 0, "--"}, {unix.S_IFDIR, fs.ModeDir, "-d"}, {unix.S_IFLNK, fs.ModeSymlink, "-l"},
	{unix.S_IFCHR, fs.ModeDevice | fs.ModeCharDevice, "-c"}, {unix.S_IFBLK, fs.ModeDevice, "-b"},
	{unix.S_IFIFO, fs.ModeNamedPipe, "-p"}, {unix.S_IFSOCK, fs.ModeSocket, "-s"},
}

// typeOfFlag returns the file type (S_IFMT) for a flag.
func typeOfFlag(flag string) (uint32, bool) {
	for _, t := range fileTypes {
		if t.flag == flag {
			return t.unix, true
		}
	}
	return 0, false
}

// Type returns the file type of a kernel mode (S_IFMT), or fs.ModeIrregular if it is unknown.
func Type(mode uint32) fs.FileMode {
	for _, t := range fileTypes {
		if t.unix == mode&unix.S_IFMT {
			return t.mode
		}
	}
	return fs.ModeIrregular
}

// unixType is the inverse of Type. It returns 0 if there is no such type.
func unixType(mode fs.FileMode) uint32 {
	for _, t := range fileTypes {
		if t.mode == mode.Type() {
			return t.unix
		}
	}
	return 0
}
