package hostfiles

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/selinux"
)

// Disk is where files are changed. Each method is one effect, after which a
// machine can lose its power. What was not synced may then be lost: a file's
// content until Sync of the file, its name until Sync of its directory.
type Disk interface {
	Mkdir(path string, mode fs.FileMode) error
	// Write creates a file, or replaces the content of one.
	Write(path string, content []byte, mode fs.FileMode) error
	// Symlink makes a symbolic link where nothing stands.
	Symlink(target, path string) error
	// Own gives what stands at a path the owner of an entry, by number, and unless it is a
	// link its mode. It follows no link.
	Own(path string, e Entry) error
	Sync(path string) error // of a file or a directory
	// SyncAll syncs all that is on the file system of a path, names and contents.
	SyncAll(path string) error
	Rename(from, to string) error
	Remove(path string) error
}

// OS is the Disk of the running system.
//
// What it makes has an SELinux label even where the kernel gives none, which is so
// until it has a policy, as in an initramfs: that of the directory it is in.
type OS struct{}

// Mkdir implements Disk.
func (OS) Mkdir(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	return selinux.Inherit(path)
}

// Write implements Disk. It follows no link.
func (OS) Write(path string, content []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	defer f.Close()
	// Whatever the umask is, and before the content: what stood there may have been for all to read.
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return selinux.Inherit(path)
}

// Symlink implements Disk.
func (OS) Symlink(target, path string) error {
	if err := os.Symlink(target, path); err != nil {
		return err
	}
	return selinux.Inherit(path)
}

// Own implements Disk. The owner first: chown clears the set-id bits.
func (OS) Own(path string, e Entry) error {
	if err := os.Lchown(path, e.UID, e.GID); err != nil || e.Kind == KindLink {
		return err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, uint32(e.Mode))
}

// Sync implements Disk.
func (OS) Sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// SyncAll implements Disk.
func (OS) SyncAll(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}

// Rename implements Disk.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements Disk.
func (OS) Remove(path string) error { return os.Remove(path) }
