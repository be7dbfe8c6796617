package vm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
)

// Installed is a machine with a disk that was not made by this package. The firmware starts the
// disk's own boot loader; this package does not look at the disk's contents. As with Machine, the
// guest reaches the host's 127.0.0.1 as 10.0.2.2, and each boot ends with a reboot or a
// power-off.
type Installed struct {
	Disk      string    // a raw or qcow2 disk image, which boots modify
	MemoryMiB int       // 0: 1024
	Log       io.Writer // receives the serial console, line by line; may be nil
	Accel     string    // QEMU's -accel; "": the first boot detects what works here
	Extra     []string  // further arguments for QEMU
	Multipath bool      // as of Machine
}

// Boot powers the machine on, like Machine.Boot. It ignores the options for boot entries, kernel
// arguments and measurements.
func (m *Installed) Boot(ctx context.Context, o BootOptions) (_ *BootResult, err error) {
	result := &BootResult{}
	format, err := diskFormat(m.Disk)
	if err != nil {
		return result, err
	}
	if m.Accel == "" {
		if m.Accel, err = accelerator(ctx); err != nil {
			return result, err
		}
	}
	writeLog, err := StartRecording(ctx, o.Record, m.Disk)
	if err != nil {
		return result, err
	}
	q := qemu{accel: m.Accel, disk: m.Disk, format: format, memoryMiB: m.MemoryMiB, extra: m.Extra, multipath: m.Multipath, writeLog: writeLog, limits: o.Limits.orDefault()}
	return result, q.powerOn(ctx, m.Log, o, result)
}

// diskFormat returns "qcow2" if the file has the magic number of that format, and "" otherwise,
// for a raw disk.
func diskFormat(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("cannot use disk: %w", err)
	}
	defer f.Close()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err != nil {
		return "", fmt.Errorf("cannot use disk %s: it has no content: %w", file, err)
	}
	if bytes.Equal(magic, []byte("QFI\xfb")) {
		return "qcow2", nil
	}
	return "", nil
}
