// Package loop makes loop devices from open files. Unlike losetup, it does not open a file again by its name, which
// in another mount namespace may be another file.
package loop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// tries is how often another process may take the device that was free a moment ago.
const tries = 100

// major is the number of loop devices (Linux, admin-guide/devices.txt).
const major = 7

// Attach makes a loop device with size bytes of a file from offset on; 0: up to its end. dev is a directory with
// device nodes, and gets the one for the device if it lacks it. The kernel frees the device when it is not mounted
// and the returned file, which is open on it, is closed.
func Attach(file *os.File, offset, size int64, dev string) (*os.File, error) {
	device, err := attach(file, offset, size, dev)
	if err != nil {
		return nil, fmt.Errorf("cannot make a loop device: %w", err)
	}
	return device, nil
}

func attach(file *os.File, offset, size int64, dev string) (*os.File, error) {
	control, err := os.OpenFile(filepath.Join(dev, "loop-control"), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for range tries {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("LOOP_CTL_GET_FREE: %w", err)
		}
		device, err := open(dev, n)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &unix.LoopConfig{
			Fd:   uint32(file.Fd()),
			Info: unix.LoopInfo64{Offset: uint64(offset), Sizelimit: uint64(size), Flags: unix.LO_FLAGS_AUTOCLEAR},
		})
		if err == nil {
			return device, nil
		}
		if err = errors.Join(err, device.Close()); !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("LOOP_CONFIGURE: %w", err)
		}
	}
	return nil, errors.New("another process takes each free device")
}

// open opens a device, and makes its node if there is none: in a container /dev does not follow the kernel.
func open(dev string, n int) (*os.File, error) {
	name := filepath.Join(dev, fmt.Sprint("loop", n))
	if err := unix.Mknod(name, unix.S_IFBLK|0o600, int(unix.Mkdev(major, uint32(n)))); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("cannot make %s: %w", name, err)
	}
	return os.OpenFile(name, os.O_RDWR, 0)
}
