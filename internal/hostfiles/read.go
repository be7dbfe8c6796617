package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxRead bounds the files that are compared whole, in bytes.
const maxRead = 16 << 20

// Read reads the regular file that stands at path below root; ok is false if
// nothing is there. Something else than a regular file is an error.
func Read(root, path string) (f File, ok bool, err error) {
	name := filepath.Join(root, path)
	var st unix.Stat_t
	switch err := unix.Lstat(name, &st); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return File{}, false, nil
	case err != nil:
		return File{}, false, fmt.Errorf("cannot read %s: %w", name, err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return File{}, false, fmt.Errorf("cannot read %s: not a regular file", name)
	case st.Size > maxRead:
		return File{}, false, fmt.Errorf("cannot read %s: %d bytes are more than %d", name, st.Size, maxRead)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return File{}, false, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return File{
		Path: path, Mode: fs.FileMode(st.Mode & 0o7777), UID: int(st.Uid), GID: int(st.Gid), Content: content,
	}, true, nil
}

// ReadEntries reads those of the paths that are there, below root, and forgets
// their contents.
func ReadEntries(root string, paths []string) (map[string]Entry, error) {
	files, err := ReadAll(root, paths)
	if err != nil {
		return nil, err
	}
	entries := make(map[string]Entry, len(files))
	for path, f := range files {
		entries[path] = f.Entry()
	}
	return entries, nil
}

// ReadAll reads those of the paths that are there, below root.
func ReadAll(root string, paths []string) (map[string]File, error) {
	files := make(map[string]File, len(paths))
	for _, path := range paths {
		f, ok, err := Read(root, path)
		if err != nil {
			return nil, err
		}
		if ok {
			files[path] = f
		}
	}
	return files, nil
}
