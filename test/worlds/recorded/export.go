package recorded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"machine-pivot/test/worlds/vm"
)

// Export is a disk with recorded writes, as a file of qemu-storage-daemon that a loop device can use.
type Export struct {
	dir    string
	log    string
	daemon *exec.Cmd
	stderr bytes.Buffer
	ended  chan error
}

// MissingToExport returns what this host lacks to record the writes to a disk; nothing if it can.
func MissingToExport() (missing []string) {
	if _, err := exec.LookPath("qemu-storage-daemon"); err != nil {
		missing = append(missing, "qemu-storage-daemon")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		missing = append(missing, "/dev/fuse")
	}
	return missing
}

// StartExport begins a recording of the writes to a disk, in an existing directory: what vm.OpenRecording reads
// after Close.
func StartExport(ctx context.Context, dir, disk string) (*Export, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	log, err := vm.StartRecording(ctx, dir, disk)
	if err != nil {
		return nil, err
	}
	e := &Export{dir: dir, log: log, ended: make(chan error, 1)}
	if err := os.WriteFile(e.mountPoint(), nil, 0o600); err != nil {
		return nil, fmt.Errorf("cannot record a disk: %w", err)
	}
	e.daemon = exec.Command("qemu-storage-daemon",
		"--blockdev", "driver=file,node-name=file,filename="+escape(disk), "--blockdev", "driver=file,node-name=log,filename="+escape(log),
		"--blockdev", "driver=blklogwrites,node-name=disk,file=file,log=log,log-sector-size=512",
		"--export", "type=fuse,id=export,node-name=disk,mountpoint="+escape(e.mountPoint())+",writable=on")
	e.daemon.Stderr = &e.stderr
	// The mount is in a namespace of its own, and vanishes with the process.
	e.daemon.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	if err := e.daemon.Start(); err != nil {
		return nil, fmt.Errorf("cannot record a disk: %w", err)
	}
	go func() { e.ended <- e.daemon.Wait() }()
	return e, nil
}

// escape quotes a file name for use as a value in an option list of QEMU.
func escape(name string) string { return strings.ReplaceAll(name, ",", ",,") }

func (e *Export) mountPoint() string { return filepath.Join(e.dir, "export") }

// exportInterval is how often Open looks whether the file is there.
const exportInterval = 20 * time.Millisecond

// Open waits until the daemon serves the disk, and opens it. A loop device on the file works in each mount
// namespace.
func (e *Export) Open(ctx context.Context) (*os.File, error) {
	path := filepath.Join("/proc", strconv.Itoa(e.daemon.Process.Pid), "root", e.mountPoint())
	for {
		// Until it is mounted, the file is the empty one below.
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			return os.OpenFile(path, os.O_RDWR, 0)
		}
		select {
		case err := <-e.ended:
			e.ended <- err
			return nil, fmt.Errorf("cannot record a disk: qemu-storage-daemon: %w: %s", err, strings.TrimSpace(e.stderr.String()))
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(exportInterval):
		}
	}
}

// Name returns the name that a loop device has for the file.
func (e *Export) Name() string { return e.mountPoint() }

// Size returns the size of the recording's log now, in bytes, for vm.EndRecording.
func (e *Export) Size() (int64, error) {
	info, err := os.Stat(e.log)
	if err != nil {
		return 0, fmt.Errorf("cannot record a disk: %w", err)
	}
	return info.Size(), nil
}

// Close ends the recording. The file must not be in use any more.
func (e *Export) Close() error {
	err := e.daemon.Process.Signal(syscall.SIGTERM)
	if waitErr := <-e.ended; waitErr != nil {
		err = errors.Join(err, fmt.Errorf("cannot end a recording: qemu-storage-daemon: %w: %s", waitErr, strings.TrimSpace(e.stderr.String())))
	}
	return errors.Join(err, os.Remove(e.mountPoint()))
}
