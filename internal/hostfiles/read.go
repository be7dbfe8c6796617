package hostfiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxRead is the maximum size of a file that Read accepts, in bytes.
const maxRead = 16 << 20

// Read reads the entry at path below root. ok is false if there is none. If path is a symbolic
// link, Read returns the link. A locked password counts as absent. A file that is too large to
// be compared is an error.
func Read(root, path string) (f File, ok bool, err error) {
	if user := passwordOf(path); user != "" {
		return readPassword(root, user)
	}
	name := filepath.Join(root, path)
	var st unix.Stat_t
	switch err := unix.Lstat(name, &st); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return File{}, false, nil
	case err != nil:
		return File{}, false, fmt.Errorf("cannot read %s: %w", name, err)
	}
	if kindOf(&st) == KindFile {
		f, err = readFile(name, path)
	} else {
		f = fileOf(path, &st)
	}
	if f.Kind == KindLink {
		f.Target, err = os.Readlink(name)
	}
	if err != nil {
		return File{}, false, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return f, true, nil
}

// fileOf returns an entry from its stat data.
func fileOf(path string, st *unix.Stat_t) File {
	f := File{Entry: Entry{Kind: kindOf(st), Path: path, Mode: ModeOf(st.Mode), UID: int(st.Uid), GID: int(st.Gid)}}
	if f.Kind == KindLink {
		f.Mode = 0
	}
	return f
}

// readFile reads the attributes and the content of a regular file through one descriptor. If
// the directory belongs to another user, that user could replace the file with a link in the
// meantime.
func readFile(name, path string) (f File, err error) {
	file, err := os.OpenFile(name, unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return f, err
	}
	defer file.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return f, err
	}
	if st.Size > maxRead {
		return f, fmt.Errorf("%d bytes are more than %d", st.Size, maxRead)
	}
	f = fileOf(path, &st)
	f.Content, err = io.ReadAll(io.LimitReader(file, maxRead))
	f.Digest = DigestOf(f.Content)
	return f, err
}

func kindOf(st *unix.Stat_t) Kind {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return KindFile
	case unix.S_IFDIR:
		return KindDirectory
	case unix.S_IFLNK:
		return KindLink
	}
	return KindOther
}

// ReadEntries reads the entries at paths below root, without contents. Paths without an entry
// are not in the map.
func ReadEntries(root string, paths []string) (map[string]Entry, error) {
	files, err := ReadAll(root, paths)
	if err != nil {
		return nil, err
	}
	entries := make(map[string]Entry, len(files))
	for path, f := range files {
		entries[path] = f.Entry
	}
	return entries, nil
}

// ReadAll reads the entries at paths below root. Paths without an entry are not in the map.
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
