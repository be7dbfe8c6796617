package hostfiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Disk is the interface through which files are changed. Each method has a single
// effect, so that tests can simulate a power cut between any two of them. A power cut
// may lose what was not synced: a file's content until Sync of the file, and its name
// until Sync of its directory.
type Disk interface {
	Mkdir(path string, mode fs.FileMode) error
	// Make creates an entry at a path that does not exist, with its content, owner and mode.
	// Until it has its owner and mode, other users cannot use it. It gets the SELinux label,
	// unless label is "". The directory may belong to another user than root.
	Make(path string, f File, label string) error
	// Own sets the owner and mode of an existing directory. It does not follow a symbolic link.
	Own(path string, e Entry) error
	// Write creates a file, or replaces the content of an existing one.
	Write(path string, content []byte, mode fs.FileMode) error
	// Overwrite replaces the content of an existing file by one of the same size, in the file's own
	// blocks. A boot loader that does not read the file system's journal sees it after a Sync.
	Overwrite(path string, content []byte) error
	Sync(path string) error // syncs a file or a directory; a link only to a directory
	// SyncAll syncs the file system of a path, with all names and contents.
	SyncAll(path string) error
	Rename(from, to string) error
	Remove(path string) error
}

// OS is the Disk of the running system.
//
// While the kernel has no SELinux policy, as in an initramfs, it does not label new
// files. Mkdir and Write then set the label of the parent directory.
type OS struct{}

// Mkdir implements Disk.
func (OS) Mkdir(path string, mode fs.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	return InheritLabel(path)
}

// Make implements Disk. It changes what it has made through a descriptor, because the owner of
// the parent directory may move something else to the path, which must not be given away.
func (OS) Make(path string, f File, label string) error {
	switch f.Kind {
	case KindLink:
		if err := os.Symlink(f.Target, path); err != nil {
			return err
		}
		return withOpen(path, unix.O_PATH, func(link *os.File) error { return finishLink(link, f, label) })
	case KindDirectory:
		if err := unix.Mkdir(path, 0o700); err != nil {
			return &fs.PathError{Op: "mkdir", Path: path, Err: err}
		}
		return withOpen(path, unix.O_DIRECTORY, func(dir *os.File) error {
			if _, err := dir.Readdirnames(1); err != io.EOF { // an empty directory is no loss
				return errors.Join(err, replaced(path))
			}
			return finish(dir, f.Entry, label)
		})
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
	return withOpen(path, unix.O_DIRECTORY, func(dir *os.File) error { return setOwnership(dir, e) })
}

// finishLink sets the label and owner of a symbolic link that was opened by its path.
func finishLink(link *os.File, f File, label string) error {
	info, err := link.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSymlink {
		return replaced(link.Name())
	}
	if f.UID != 0 || f.GID != 0 { // otherwise it has the right owner already
		if err := unix.Fchownat(int(link.Fd()), "", f.UID, f.GID, unix.AT_EMPTY_PATH); err != nil {
			return &fs.PathError{Op: "chown", Path: link.Name(), Err: err}
		}
	}
	if label == "" {
		return nil
	}
	return LabelLink(link, label)
}

// replaced returns the error for a path at which another process has put something else.
func replaced(path string) error {
	return &fs.PathError{Op: "make", Path: path, Err: errReplaced}
}

var errReplaced = errors.New("another process has replaced it")

// finish sets the label, owner and mode of an open file.
func finish(file *os.File, e Entry, label string) error {
	if label != "" {
		if err := LabelFile(file, label); err != nil {
			return err
		}
	}
	return setOwnership(file, e)
}

// withOpen opens a path without following a symbolic link, and calls work with the file.
func withOpen(path string, flags int, work func(*os.File) error) error {
	file, err := os.OpenFile(path, flags|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(work(file), file.Close())
}

// Write implements Disk. It does not follow a symbolic link.
func (OS) Write(path string, content []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	defer f.Close()
	// Set the mode before writing: the umask may have changed it, and an existing file may be
	// readable by all.
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return InheritLabel(path)
}

// Overwrite implements Disk. It does not follow a symbolic link.
func (OS) Overwrite(path string, content []byte) error {
	return withOpen(path, unix.O_WRONLY|unix.O_NONBLOCK, func(f *os.File) error {
		info, err := f.Stat()
		switch {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return replaced(path)
		case info.Size() != int64(len(content)):
			return &fs.PathError{Op: "overwrite", Path: path, Err: fmt.Errorf("it has %d bytes, not %d", info.Size(), len(content))}
		}
		_, err = f.WriteAt(content, 0)
		return err
	})
}

// Sync implements Disk. It opens nothing but a file or a directory: in a user's directory, a FIFO
// could be there by now, or a link to a device.
func (OS) Sync(path string) error {
	err := syncOpened(path, unix.O_NONBLOCK)
	if errors.Is(err, unix.ELOOP) { // a link to a directory, such as /var
		err = syncOpened(path+"/.", unix.O_DIRECTORY)
	}
	return err
}

func syncOpened(path string, flags int) error {
	return withOpen(path, flags, func(f *os.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() && !info.IsDir() {
			return replaced(path)
		}
		return f.Sync()
	})
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
