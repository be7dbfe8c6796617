package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
)

// InNamespace calls work on a thread with a private mount namespace. Its mounts are invisible elsewhere. The thread and
// the namespace end with work.
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

// ShowContent shows a file with another content to this mount namespace, which must be private, and so to processes that
// are started in it.
func ShowContent(file string, content []byte) error {
	shown, err := os.CreateTemp("/run", "pivot-shown-*")
	if err == nil {
		_, err = shown.Write(content)
		err = errors.Join(err, shown.Chmod(0o644), shown.Close())
	}
	if err == nil {
		err = unix.Mount(shown.Name(), file, "", unix.MS_BIND, "")
		err = errors.Join(err, os.Remove(shown.Name()))
	}
	if err != nil {
		return fmt.Errorf("cannot show another content of %s: %w", file, err)
	}
	return nil
}

// EnterNamespace gives the calling thread a private mount namespace. Its mounts are invisible elsewhere. The goroutine
// must be locked to the thread.
func EnterNamespace() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("cannot make a private mount namespace: %w", err)
	}
	err := makePrivate()
	if errors.Is(err, unix.EINVAL) {
		if err = bindRoot(); err == nil {
			err = makePrivate()
		}
	}
	if err != nil {
		return fmt.Errorf("cannot make the mounts private: %w", err)
	}
	return nil
}

func makePrivate() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }

// bindRoot makes the root directory of the calling thread, which is in a mount namespace of its own, a mount point.
// Only of those the propagation can be changed, and the root of a chroot need not be one. The copy of the mounts is
// attached at /proc, since the mount at the root's own place is outside, and may be shared with other namespaces.
func bindRoot() error {
	without := func(err error) error {
		return fault.New(fault.Refused, "the root directory is no mount point, as in a chroot: %w", err).
			WithHint("make it one from outside: mount --bind DIR DIR, and mount /proc below it")
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return without(err)
	}
	defer unix.Close(tree)
	if err := unix.Mount("", "/proc", "", unix.MS_PRIVATE, ""); err != nil {
		return without(err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, "/proc", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return without(err)
	}
	dir, err := unix.Getwd()
	if err == nil {
		err = unix.Fchdir(tree)
	}
	if err == nil {
		err = unix.Chroot(".")
	}
	if err == nil {
		err = unix.Chdir(dir)
	}
	return err
}

// RemountWritable makes a read-only mount writable, and, like libostree, its file system: the mount of "-o ro", as of /boot
// on Fedora CoreOS, makes both read-only. Other mounts of it stay as they are. If the mount is writable already, it is a no-op.
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
	err := unix.Mount("", mountPoint, "", unix.MS_BIND|unix.MS_REMOUNT|flags, "")
	if err == nil {
		err = unix.Statfs(mountPoint, &st)
	}
	if err == nil && st.Flags&unix.ST_RDONLY != 0 {
		err = unix.Mount("", mountPoint, "", unix.MS_REMOUNT|flags, "")
	}
	if err != nil {
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
