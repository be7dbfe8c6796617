package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// inNamespace calls work on a thread with a mount namespace of its own, whose
// mounts nobody else sees. Both end with work.
func inNamespace(work func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and the namespace with the thread.
		runtime.LockOSThread()
		err := EnterNamespace()
		if err == nil {
			err = work()
		}
		done <- err
	}()
	return <-done
}

// WithTmpfs calls work in a private mount namespace in which a directory is empty
// and can be written to, in memory. Processes that work starts see it so too;
// goroutines that it starts do not. A directory that is not there stays so.
func WithTmpfs(dir string, work func() error) error {
	return inNamespace(func() error {
		err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot mount tmpfs at %s: %w", dir, err)
		}
		return work()
	})
}

// EnterNamespace gives the calling thread a mount namespace of its own, whose
// mounts nobody else sees. The goroutine must be locked to the thread.
func EnterNamespace() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("cannot make a private mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make the mounts private: %w", err)
	}
	return nil
}

// RemountWritable makes a mount writable if it is not. It cannot where the file
// system itself is read-only.
func RemountWritable(mountPoint string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(mountPoint, &st); err != nil {
		return fmt.Errorf("cannot look at %s: %w", mountPoint, err)
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	// What the mount has, a remount would take away; these flags have the same bits in both calls.
	flags := uintptr(st.Flags) & (unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC | unix.ST_NOATIME | unix.ST_NODIRATIME)
	if err := unix.Mount("", mountPoint, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return fmt.Errorf("cannot make a writable view of %s: %w", mountPoint, err)
	}
	return nil
}

// OpenWritable opens a directory such that what is below it can be written
// through /proc/self/fd even where its mount is read-only, as /sysroot is on
// hosts with sysroot.readonly. It is libostree's own way: a writable view in a
// private mount namespace. The view lives as long as the file is open; the
// host's mount stays as it is. below is the mount point that holds the directory.
func OpenWritable(below, dir string) (*os.File, error) {
	var f *os.File
	err := inNamespace(func() (err error) {
		if err := RemountWritable(below); err != nil {
			return err
		}
		f, err = os.Open(dir)
		return err
	})
	return f, err
}
