package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// InNamespace calls work on a thread with a private mount namespace, whose mounts are
// invisible elsewhere. The thread and the namespace end with work.
func InNamespace(work func() error) error {
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

// WithTmpfs calls work in a private mount namespace in which a tmpfs is mounted over a
// directory, so that it is empty and writable. Processes that work starts see the tmpfs
// too; goroutines that it starts do not. If the directory does not exist, nothing is
// mounted.
func WithTmpfs(dir string, work func() error) error {
	return InNamespace(func() error {
		err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot mount tmpfs at %s: %w", dir, err)
		}
		return work()
	})
}

// EnterNamespace gives the calling thread a private mount namespace, whose mounts are
// invisible elsewhere. The goroutine must be locked to the thread.
func EnterNamespace() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("cannot make a private mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make the mounts private: %w", err)
	}
	return nil
}

// RemountWritable makes a read-only mount writable. It fails if the file system itself
// is read-only. If the mount is writable already, it is a no-op.
func RemountWritable(mountPoint string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(mountPoint, &st); err != nil {
		return fmt.Errorf("cannot look at %s: %w", mountPoint, err)
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	// A remount clears flags that are not repeated. These have the same values as ST_ and MS_ flags.
	flags := uintptr(st.Flags) & (unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC | unix.ST_NOATIME | unix.ST_NODIRATIME)
	if err := unix.Mount("", mountPoint, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return fmt.Errorf("cannot make a writable view of %s: %w", mountPoint, err)
	}
	return nil
}

// OpenWritable opens a directory so that files below it can be written through
// /proc/self/fd even if its mount is read-only, like /sysroot on hosts with
// sysroot.readonly. Like libostree, it remounts in a private mount namespace. The
// writable mount exists as long as the file is open; the host's mount does not
// change. below is the mount point that contains the directory.
func OpenWritable(below, dir string) (*os.File, error) {
	var f *os.File
	err := InNamespace(func() (err error) {
		if err := RemountWritable(below); err != nil {
			return err
		}
		f, err = os.Open(dir)
		return err
	})
	return f, err
}
