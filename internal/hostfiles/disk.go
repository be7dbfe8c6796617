package hostfiles

import (
	"errors"
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
	// Make makes an entry at a path where nothing stands, whole: with its content, and with
	// its owner and mode before anybody else can use it, and with an SELinux label unless
	// that is "". The directory need not be root's own.
	Make(path string, f File, label string) error
	// Own gives the directory at a path the owner and mode of an entry. No link is followed.
	Own(path string, e Entry) error
	// Write creates a file, or replaces the content of one.
	Write(path string, content []byte, mode fs.FileMode) error
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

// Make implements Disk. All is done by the descriptor of what was made: whoever owns the
// directory can give its name to something else, which stays untouched then.
func (OS) Make(path string, f File, label string) error {
	switch f.Kind {
	case KindLink:
		if err := os.Symlink(f.Target, path); err != nil {
			return err
		}
		var err error
		if f.UID != 0 || f.GID != 0 { // it is root's already
			err = os.Lchown(path, f.UID, f.GID)
		}
		if label != "" {
			err = errors.Join(err, selinux.SetLabel(path, label))
		}
		return err
	case KindDirectory:
		if err := unix.Mkdir(path, 0o700); err != nil {
			return &fs.PathError{Op: "mkdir", Path: path, Err: err}
		}
		return withOpen(path, unix.O_DIRECTORY, func(dir *os.File) error { return finish(dir, f.Entry, label) })
	}
	return withOpen(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, func(file *os.File) error {
		if _, err := file.Write(f.Content); err != nil {
			return err
		}
		return finish(file, f.Entry, label)
	})
}

// Own implements Disk.
func (OS) Own(path string, e Entry) error {
	return withOpen(path, unix.O_DIRECTORY, func(dir *os.File) error { return own(dir, e) })
}

// finish gives an open file its label, owner and mode.
func finish(file *os.File, e Entry, label string) error {
	if label != "" {
		if err := selinux.Label(file, label); err != nil {
			return err
		}
	}
	return own(file, e)
}

// withOpen calls work with what is at a path, no link followed.
func withOpen(path string, flags int, work func(*os.File) error) error {
	file, err := os.OpenFile(path, flags|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(work(file), file.Close())
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
