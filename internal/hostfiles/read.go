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

// maxRead bounds the files that are compared whole, in bytes.
const maxRead = 16 << 20

// Read reads what stands at path below root; ok is false if nothing does. Links are not
// followed. At the path of a password that stands which is not locked. A file that is too large to compare is an error.
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

// fileOf is what the kernel tells of an entry.
func fileOf(path string, st *unix.Stat_t) File {
	f := File{Entry: Entry{Kind: kindOf(st), Path: path, Mode: ModeOf(st.Mode), UID: int(st.Uid), GID: int(st.Gid)}}
	if f.Kind == KindLink {
		f.Mode = 0
	}
	return f
}

// readFile reads a regular file, all of it by one descriptor: where its directory is not
// root's own, somebody could put a link in its place meanwhile.
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

// ReadEntries reads what stands at paths below root, and forgets contents. A path at
// which nothing stands is absent.
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

// ReadAll reads what stands at paths below root.
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
