package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/selinux"
)

// stagingPrefix is the prefix of our directories below the repository's tmp/. It is not
// "staging-", since libostree would take such a directory over. libostree removes ours
// after a day, like all files there.
const stagingPrefix = "pivot-import-"

// staging is a directory with objects that are not published yet, under their final names.
// It belongs to the process that holds its lock.
//
// The boot ID is in its name. An interrupted import leaves it, and the next import of the
// same boot uses what is in it. After a reboot its files cannot be trusted, since they
// were never synced.
type staging struct {
	dir *os.File // locked while open
	own bool     // a directory for this import alone, which no other one uses

	created atomic.Uint64 // counter for the names of createNew

	labelling sync.Once
	label     string // what inherit gives to files; "": they have their label, or there is none
	failed    error  // why that is not known
}

// openStaging opens the staging directory of this boot, which may be new, and removes those
// of earlier boots.
func openStaging(tmp string) (*staging, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(tmp, stagingPrefix+strings.TrimSpace(string(boot)))
	if err := removeStale(tmp, path); err != nil {
		return nil, err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	s := &staging{}
	if s.dir, err = lockDir(path); err != nil {
		return nil, err
	}
	if s.dir == nil { // another import is running
		s.own = true
		if path, err = os.MkdirTemp(tmp, stagingPrefix+"*"); err != nil {
			return nil, err
		}
		if s.dir, err = lockDir(path); err != nil {
			return nil, err
		}
	}
	if err := selinux.Inherit(path); err != nil {
		return nil, err
	}
	return s, s.makeShards()
}

// leftSize is the size of all files in staging directories, in bytes. Files may disappear
// meanwhile if an import is running.
func leftSize(tmp string) (sum int64, err error) {
	found, err := filepath.Glob(filepath.Join(tmp, stagingPrefix+"*"))
	for _, path := range found {
		err = errors.Join(err, filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
			var info fs.FileInfo
			if err == nil {
				info, err = d.Info()
			}
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err == nil && info.Mode().IsRegular():
				sum += info.Size()
			}
			return err
		}))
	}
	return sum, err
}

// lockDir opens a directory and takes its lock. It returns nil if another process has the
// lock or has just removed the directory.
func lockDir(path string) (*os.File, error) {
	dir, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, dir.Close()
	}
	var locked, named fs.FileInfo
	if err == nil {
		locked, err = dir.Stat()
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	if named, err = os.Stat(path); err != nil || !os.SameFile(locked, named) {
		return nil, dir.Close()
	}
	return dir, nil
}

// removeStale removes the staging directories that are not locked, except keep.
func removeStale(tmp, keep string) error {
	found, err := filepath.Glob(filepath.Join(tmp, stagingPrefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range found {
		if path == keep {
			continue
		}
		dir, err := lockDir(path)
		if err != nil {
			return err
		}
		if dir == nil {
			continue
		}
		if err := errors.Join(os.RemoveAll(path), dir.Close()); err != nil {
			return err
		}
	}
	return nil
}

// makeShards makes a directory for each first byte of checksums, as in objects/. In a
// single directory many writers would wait for the kernel's lock of it.
func (s *staging) makeShards() error {
	for i := range 256 {
		name := fmt.Sprintf("%02x", i)
		err := unix.Mkdirat(s.fd(), name, 0o700)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err == nil {
			err = selinux.Inherit(filepath.Join(s.dir.Name(), name))
		}
		if err != nil {
			return fmt.Errorf("cannot make staging directory: %w", err)
		}
	}
	return nil
}

func (s *staging) fd() int { return int(s.dir.Fd()) }

// whole lists the file objects that an interrupted import left whole, and removes all other
// files. A regular file is whole if its modification time is the epoch, which is set last.
func (s *staging) whole() ([]ObjectName, error) {
	var names []ObjectName
	root := s.dir.Name()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		relative := strings.TrimPrefix(path, root+"/")
		name, archive, err := ParseLoosePath(relative)
		if err == nil && !archive && name.Type == File && info.Mode().IsRegular() && info.ModTime().Equal(time.Unix(0, 0)) {
			names = append(names, name)
			return nil
		}
		return os.Remove(path)
	})
	return names, err
}

// create creates the file of an object.
func (s *staging) create(n ObjectName, mode uint32) (*os.File, error) {
	name := n.path()
	fd, err := unix.Openat(s.fd(), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, &os.PathError{Op: "create", Path: s.path(n), Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// inherit is selinux.Inherit for the file of an object. All files here are alike, so the
// first one says what is to be done for each.
func (s *staging) inherit(n ObjectName) error {
	path := s.path(n)
	s.labelling.Do(func() {
		has, err := selinux.LabelOf(path)
		if err == nil && has == "" {
			s.label, err = selinux.LabelOf(filepath.Dir(path))
		}
		s.failed = err
	})
	if s.failed != nil || s.label == "" {
		return s.failed
	}
	return selinux.SetLabel(path, s.label)
}

// createNew creates a file for an object whose name is not known yet. After a crash whole
// removes it.
func (s *staging) createNew() (*os.File, error) {
	name := fmt.Sprintf("new-%d", s.created.Add(1))
	fd, err := unix.Openat(s.fd(), name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "create", Path: filepath.Join(s.dir.Name(), name), Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// rename turns an object into another one: it changes the file and renames it.
func (s *staging) rename(from, to ObjectName, change func(path string) error) error {
	now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
	if err := unix.UtimesNanoAt(s.fd(), from.path(), now, 0); err != nil {
		return err
	}
	if err := change(s.path(from)); err != nil {
		return err
	}
	if err := unix.Renameat(s.fd(), from.path(), s.fd(), to.path()); err != nil {
		return err
	}
	return s.markWhole(to.path())
}

// markWhole sets the modification time by which whole recognizes a file.
func (s *staging) markWhole(name string) error {
	return unix.UtimesNanoAt(s.fd(), name, []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {}}, 0)
}

// path is the path of an object's file.
func (s *staging) path(n ObjectName) string { return filepath.Join(s.dir.Name(), n.path()) }

// drop removes an object that could not be written.
func (s *staging) drop(n ObjectName) error {
	if err := unix.Unlinkat(s.fd(), n.path(), 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove %s: %w", s.path(n), err)
	}
	return nil
}

// sync makes everything in the file system durable.
func (s *staging) sync() error { return unix.Syncfs(s.fd()) }

// close releases the lock. The files stay for the next import of this boot if keep is set,
// unless the directory is own, which no other import would find.
func (s *staging) close(keep bool) error {
	var err error
	if !keep || s.own {
		err = os.RemoveAll(s.dir.Name())
	}
	return errors.Join(err, s.dir.Close())
}
