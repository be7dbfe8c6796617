package crash

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
)

// disk is a hostfiles.Disk that tracks what is durable, with a file system's weakest guarantees: contents are durable
// after a sync of the file, names after one of the directory.
type disk struct {
	*power
	Lying     bool   // fault: Sync of a file does nothing
	Forgetful bool   // fault: SyncAll does nothing
	Careless  bool   // fault: everything written is world-readable
	Without   string // fault: the file with this base name is never written

	now, durable map[string]*inode // by path
}

type inode struct {
	content, durable []byte
	mode             fs.FileMode // with fs.ModeDir for a directory
	target           string      // of a symbolic link
	uid, gid         int
}

// name returns the canonical path of a file. Each deployment reaches the shared /var and /boot
// through links of its own.
func name(path string) string {
	return filepath.Join(canonical(filepath.Dir(path)), filepath.Base(path))
}

// canonical resolves the links in the path of an existing file, and returns another path unchanged.
// It asks the kernel, because a sweep resolves millions of paths: filepath.EvalSymlinks would look
// at each of their directories.
func canonical(path string) string {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return path
	}
	defer func() { _ = unix.Close(fd) }()
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return path
	}
	return real
}

// skipped reports whether operations on the path do nothing because of Without.
func (d *disk) skipped(path string) bool {
	return d.Without != "" && strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "."), ".new") == d.Without
}

// effectiveMode returns the mode that a file or directory really gets.
func (d *disk) effectiveMode(mode fs.FileMode) fs.FileMode {
	switch {
	case d.Careless && mode.IsDir():
		return mode | 0o755
	case d.Careless:
		return mode | 0o644
	}
	return mode
}

var _ hostfiles.Disk = (*disk)(nil)

// Mkdir implements hostfiles.Disk.
func (d *disk) Mkdir(path string, mode fs.FileMode) error {
	path = name(path)
	return d.touch("mkdir", path, nil, func() error {
		d.now[path] = &inode{mode: d.effectiveMode(fs.ModeDir | mode)}
		return os.Mkdir(path, d.now[path].mode.Perm())
	})
}

// Write implements hostfiles.Disk.
func (d *disk) Write(path string, content []byte, mode fs.FileMode) error {
	path = name(path)
	if d.skipped(path) {
		return nil
	}
	write := func(content []byte) error {
		n := &inode{mode: mode}
		if old := d.now[path]; old != nil {
			n = old
		}
		n.content, n.mode = content, d.effectiveMode(mode)
		d.now[path] = n
		return n.write(path)
	}
	half := func() { _ = write(content[:len(content)/2]) }
	return d.touch("write", path, half, func() error { return write(content) })
}

// Overwrite implements hostfiles.Disk. Halfway, the first half of the file is new.
func (d *disk) Overwrite(path string, content []byte) error {
	path = name(path)
	if d.skipped(path) {
		return nil
	}
	write := func(content []byte) error {
		n := d.now[path]
		if n == nil || len(n.content) != len(content) {
			return fs.ErrInvalid
		}
		n.content = content
		return n.write(path)
	}
	half := func() {
		if n := d.now[path]; n != nil && len(n.content) == len(content) {
			_ = write(slices.Concat(content[:len(content)/2], n.content[len(content)/2:]))
		}
	}
	return d.touch("overwrite", path, half, func() error { return write(content) })
}

// Make implements hostfiles.Disk. Halfway, a file has half of its content, and a directory is there
// with neither its mode nor its owner.
func (d *disk) Make(path string, f hostfiles.File, _ string) error {
	path = name(path)
	put := func(n *inode) error {
		if _, err := os.Lstat(path); err == nil {
			return fs.ErrExist
		}
		d.now[path] = n
		return n.write(path)
	}
	whole := &inode{content: f.Content, mode: d.effectiveMode(f.Mode), target: f.Target, uid: f.UID, gid: f.GID}
	half := func() { _ = put(&inode{content: f.Content[:len(f.Content)/2], mode: 0o600}) }
	switch f.Kind {
	case hostfiles.KindDirectory:
		whole.mode |= fs.ModeDir
		half = func() { _ = put(&inode{mode: fs.ModeDir | 0o700}) }
	case hostfiles.KindLink:
		whole.mode, half = fs.ModeSymlink, nil
	}
	return d.touch("make", path, half, func() error { return put(whole) })
}

// Own implements hostfiles.Disk.
func (d *disk) Own(path string, e hostfiles.Entry) error {
	path = name(path)
	own := func(mode fs.FileMode) error {
		n := &inode{mode: fs.ModeDir | mode, uid: e.UID, gid: e.GID}
		d.now[path] = n
		return n.write(path)
	}
	half := func() {
		if info, err := os.Stat(path); err == nil {
			_ = own(info.Mode().Perm())
		}
	}
	return d.touch("own", path, half, func() error { return own(e.Mode) })
}

// Sync implements hostfiles.Disk.
func (d *disk) Sync(path string) error {
	if d.skipped(path) {
		return nil
	}
	path = canonical(path)
	return d.touch("sync", path, nil, func() error {
		if n := d.now[path]; n != nil && !n.mode.IsDir() {
			if !d.Lying {
				n.durable = n.content
			}
			return nil
		}
		if n, was := d.now[path], d.durable[path]; n != nil && was != nil && was.mode.IsDir() { // the mode and owner of the directory itself
			d.durable[path] = n
		}
		for _, names := range []map[string]*inode{d.now, d.durable} {
			for file := range names {
				if filepath.Dir(file) != path {
					continue
				}
				if n, there := d.now[file]; there {
					d.durable[file] = n
				} else {
					delete(d.durable, file)
				}
			}
		}
		return nil
	})
}

// SyncAll implements hostfiles.Disk.
func (d *disk) SyncAll(string) error {
	return d.effect("sync all", nil, func() error {
		if d.Forgetful {
			return nil
		}
		for _, n := range d.now {
			n.durable = n.content
		}
		d.durable = d.copy()
		return nil
	})
}

// copy returns a copy of the current names.
func (d *disk) copy() map[string]*inode { return maps.Clone(d.now) }

// Rename implements hostfiles.Disk.
func (d *disk) Rename(from, to string) error {
	from, to = name(from), name(to)
	if d.skipped(to) {
		return nil
	}
	return d.touch("rename", to, nil, func() error {
		if _, known := d.now[from]; !known { // the file was there before the disk tracked it
			content, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			info, err := os.Stat(from)
			if err != nil {
				return err
			}
			n := &inode{content: content, durable: content, mode: info.Mode()}
			d.now[from], d.durable[from] = n, n
		}
		d.now[to] = d.now[from]
		delete(d.now, from)
		return os.Rename(from, to)
	})
}

// Remove implements hostfiles.Disk.
func (d *disk) Remove(path string) error {
	path = name(path)
	if d.skipped(path) {
		return nil
	}
	return d.touch("remove", path, nil, func() error {
		delete(d.now, path)
		return os.Remove(path)
	})
}

// lose reduces the disk to what survives a crash of the machine.
func (d *disk) lose(loss Loss) error {
	known := maps.Clone(d.now)
	maps.Copy(known, d.durable)
	if loss == PowerCut {
		d.now = d.durable
	}
	if loss == PowerCut || loss == Scramble {
		for _, n := range d.now {
			n.content = n.durable
		}
	}
	if err := d.project(slices.Sorted(maps.Keys(known))); err != nil {
		return err
	}
	d.durable = maps.Clone(d.now)
	for _, n := range d.durable {
		n.durable = n.content
	}
	return nil
}

// project makes the real files match d.now. Only the given paths can differ.
func (d *disk) project(paths []string) error {
	for _, path := range paths {
		n, there := d.now[path]
		_, err := os.Stat(filepath.Dir(path))
		switch {
		case err != nil: // the directory was lost, and the file with it
			delete(d.now, path)
			err = nil
		case !there:
			err = os.RemoveAll(path)
		default:
			err = n.write(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write makes the real file match the inode.
func (n *inode) write(path string) error {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != n.mode.Type() {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	var err error
	switch {
	case n.mode.IsDir():
		err = os.MkdirAll(path, n.mode.Perm())
	case n.mode&fs.ModeSymlink != 0:
		_ = os.Remove(path) // an earlier link
		return errors.Join(os.Symlink(n.target, path), n.own(path))
	default:
		err = os.WriteFile(path, n.content, n.mode.Perm())
	}
	return errors.Join(err, n.own(path), os.Chmod(path, n.mode.Perm()))
}

// own sets the owner of the real file. It does nothing unless it runs as root.
func (n *inode) own(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Lchown(path, n.uid, n.gid)
}
