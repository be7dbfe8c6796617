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

	"machine-pivot/internal/hostfiles"
)

// stagingPrefix is the prefix of our directories below the repository's tmp/. It must not be
// "staging-", since libostree would reuse such a directory. libostree removes ours after a
// day, like all files there.
const stagingPrefix = "pivot-import-"

// staging is a directory with objects that are not published yet, under their final names.
// It belongs to the process that holds its lock.
//
// The name of the directory contains the boot ID. An interrupted import leaves the directory
// behind, and the next import in the same boot reuses its files. After a reboot the files
// cannot be trusted, since they were never synced.
type staging struct {
	dir     *os.File // locked while open
	private bool     // used by this import only; no other import reuses it
	fresh   fresh    // set by begin

	created atomic.Uint64 // counter for the names of createNew

	labelling sync.Once
	label     string // the label that inherit sets; "" if there is nothing to set
	failed    error  // why label could not be determined
}

// openStaging opens or creates the staging directory of this boot, and removes those of earlier
// boots. If another import uses it, openStaging creates a private one.
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
	for s.dir == nil { // another import is running, or has just removed our unlocked directory
		s.private = true
		if path, err = os.MkdirTemp(tmp, stagingPrefix+"*"); err != nil {
			return nil, err
		}
		if s.dir, err = lockDir(path); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(hostfiles.InheritLabel(path), s.makeShards()); err != nil {
		return nil, errors.Join(err, s.dir.Close())
	}
	return s, nil
}

// leftSize returns the total size of the files in staging directories that no import uses, in bytes. The next import
// uses or removes them, but not those of a running import, because its directory is locked. It ignores files that
// disappear during the walk.
func leftSize(tmp string) (sum int64, err error) {
	found, err := filepath.Glob(filepath.Join(tmp, stagingPrefix+"*"))
	for _, path := range found {
		dir, failed := lockDir(path)
		if failed != nil || dir == nil {
			err = errors.Join(err, failed)
			continue
		}
		err = errors.Join(err, dir.Close()) // at once, so that an import that begins now can have it
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

// lockDir opens a directory and takes its lock. It returns nil if another process holds the
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

// makeShards creates a directory for each first byte of a checksum, as in objects/. In a
// single directory, writers would contend for the kernel's lock on it.
func (s *staging) makeShards() error {
	for i := range 256 {
		name := fmt.Sprintf("%02x", i)
		err := unix.Mkdirat(s.fd(), name, 0o700)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err == nil {
			err = hostfiles.InheritLabel(filepath.Join(s.dir.Name(), name))
		}
		if err != nil {
			return fmt.Errorf("cannot make staging directory: %w", err)
		}
	}
	return nil
}

func (s *staging) fd() int { return int(s.dir.Fd()) }

// whole returns the complete file objects that an interrupted import has left, and removes all
// other files. A regular file is complete if its modification time is the epoch, which is set
// last.
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

// create creates the file of an object with the permissions of mode, as far as the kernel grants
// them (see fresh). No other user can open it before it is complete: the directory is private.
func (s *staging) create(n ObjectName, mode uint32) (*stagedFile, error) {
	return openStaged(s.fd(), n.path(), mode)
}

// inherit does what hostfiles.InheritLabel does, for the file of an object. The kernel treats all
// files here alike, so the first file determines the label for all.
func (s *staging) inherit(n ObjectName) error {
	path := s.path(n)
	s.labelling.Do(func() {
		has, err := hostfiles.LabelOf(path)
		if err == nil && has == "" {
			s.label, err = hostfiles.LabelOf(filepath.Dir(path))
		}
		s.failed = err
	})
	if s.failed != nil || s.label == "" {
		return s.failed
	}
	return hostfiles.SetLabel(path, s.label)
}

// createNew creates a file for an object without a name so far. After a crash, whole removes the file.
func (s *staging) createNew(mode uint32) (*stagedFile, error) {
	return openStaged(s.fd(), fmt.Sprintf("new-%d", s.created.Add(1)), mode)
}

// rename changes the file of an object with change and renames it to that of another object.
// In the meantime the file is marked as incomplete.
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

// markWhole marks a file as complete by setting its modification time to the epoch.
func (s *staging) markWhole(name string) error {
	return unix.UtimesNanoAt(s.fd(), name, []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {}}, 0)
}

// path returns the path of an object's file.
func (s *staging) path(n ObjectName) string { return filepath.Join(s.dir.Name(), n.path()) }

// drop removes the file of an object that could not be written.
func (s *staging) drop(n ObjectName) error {
	if err := unix.Unlinkat(s.fd(), n.path(), 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("cannot remove %s: %w", s.path(n), err)
	}
	return nil
}

// sync makes everything on the file system of the directory durable.
func (s *staging) sync() error { return unix.Syncfs(s.fd()) }

// close releases the lock. If keep is set, the files stay for the next import in the same boot,
// unless the directory is private: no other import would find it.
func (s *staging) close(keep bool) error {
	var err error
	if !keep || s.private {
		err = os.RemoveAll(s.dir.Name())
	}
	return errors.Join(err, s.dir.Close())
}
