package ostree

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// stagedFile is a new file in the staging directory, open for writing. It does no more than
// objects need: an os.File costs a system call and several allocations to be pollable and to be
// closed by the garbage collector.
type stagedFile struct {
	fd   int    // -1: closed
	name string // relative to the staging directory
}

// openStaged creates a file in a directory with the permissions of mode. No file may have its name.
func openStaged(dir int, name string, mode uint32) (*stagedFile, error) {
	for {
		fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, mode&permissions)
		switch err {
		case nil:
			return &stagedFile{fd, name}, nil
		case unix.EINTR:
		default:
			return nil, &os.PathError{Op: "create", Path: name, Err: err}
		}
	}
}

// Write implements io.Writer.
func (f *stagedFile) Write(p []byte) (written int, err error) {
	for written < len(p) {
		n, err := unix.Write(f.fd, p[written:])
		switch {
		case err == unix.EINTR:
			continue
		case err == nil && n == 0:
			err = io.ErrShortWrite
		}
		if err != nil {
			return written, &os.PathError{Op: "write", Path: f.name, Err: err}
		}
		written += n
	}
	return written, nil
}

// Sync makes the file durable.
func (f *stagedFile) Sync() error {
	for {
		if err := unix.Fsync(f.fd); err != unix.EINTR {
			return os.NewSyscallError("fsync", err)
		}
	}
}

// Close closes the file. It is a no-op for a closed one.
func (f *stagedFile) Close() error {
	if f.fd < 0 {
		return nil
	}
	err := unix.Close(f.fd)
	f.fd = -1
	return os.NewSyscallError("close", err)
}
