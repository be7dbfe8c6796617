package hostfiles

import (
	"fmt"
	"path/filepath"
	"strings"
)

// reader reads entries below a root directory one after the other. It keeps the directory of the last one open for the
// next. Most files of a MachineConfig are in few directories, and to open one is more work than to read a small file.
// So entries of one directory that are read in a row are of one directory, even if a user replaces it meanwhile.
type reader struct {
	root   string
	follow Follow

	dir *Dir // of the last entry; nil if there is none
	at  string
}

func (r *reader) close() { _ = r.dir.Close() } // a directory opened to read

// open returns the open directory of the entry at a path. The caller must not close it. After an error,
// it is the last one on the way that could be opened; it may be nil.
func (r *reader) open(path string) (*Dir, error) {
	at := filepath.Dir(path)
	if r.dir != nil && at == r.at {
		return r.dir, nil
	}
	r.close()
	dir, err := r.walk(path)
	if r.dir, r.at = dir, at; err != nil {
		r.at = "" // not that of any path
	}
	return dir, err
}

// walk opens the directory of the entry at a path. A followed link has its target in a system with the reader's root
// directory: an absolute one begins there.
func (r *reader) walk(path string) (dir *Dir, err error) {
	for range maxLinks {
		parts := strings.Split(strings.Trim(path, "/"), "/")
		n, to := 0, ""
		dir, err = walk(r.root, path, func(at *Dir, part string) (*Dir, error) {
			n++
			if to = at.followed(part, r.follow); to != "" {
				return nil, ErrLink
			}
			return at.open(part, r.follow)
		})
		if to == "" || err == nil {
			return dir, err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join("/", filepath.Join(parts[:n]...), to)
		}
		path = filepath.Join(append([]string{to}, parts[n+1:]...)...)
		if err := dir.Close(); err != nil {
			return nil, err
		}
		dir = nil
	}
	return nil, err
}

// read is Read for one of the entries.
func (r *reader) read(path string) (f File, ok bool, err error) {
	if user := passwordOf(path); user != "" {
		return readPassword(r.root, user)
	}
	if path == "" { // the root itself
		parent, base := filepath.Split(filepath.Clean(r.root))
		of := reader{root: parent, follow: r.follow}
		defer of.close()
		return of.readAs(base, path)
	}
	return r.readAs(path, path)
}

// readAs reads the entry below the root as the one at a path.
func (r *reader) readAs(below, path string) (f File, ok bool, err error) {
	dir, err := r.open(below)
	if err == nil {
		f, err = dir.read(filepath.Base(below), path)
	}
	switch {
	case unreachable(err):
		return File{}, false, nil
	case err != nil:
		return File{}, false, fmt.Errorf("cannot read %s: %w", filepath.Join(r.root, below), err)
	}
	return f, true, nil
}

// ofUsers is OfUsers for one of the entries.
func (r *reader) ofUsers(path string) bool {
	dir, _ := r.open(path)
	return dir != nil && (dir.Shared() || dir.mounted(filepath.Base(path)))
}
