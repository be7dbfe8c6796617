package vm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
)

// Installed is a machine with a disk that was made elsewhere: the machine's firmware
// starts the boot loader on it, and this package knows nothing of what it holds. As for
// a Machine, this machine's 127.0.0.1 is 10.0.2.2, and each boot ends with a reboot or
// a power-off.
type Installed struct {
	Disk      string    // a raw disk or a qcow2 file, which is written to
	MemoryMiB int       // 0: 1024
	Log       io.Writer // gets the serial console, line by line; may be nil
	Accel     string    // QEMU's -accel; "": the first boot finds out what works here
	Extra     []string  // further arguments for QEMU
}

// Boot powers the machine on, as Machine.Boot does. Of the options those that are about
// boot entries, kernel arguments and recordings have no meaning here.
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
	q := qemu{accel: m.Accel, disk: m.Disk, format: format, memoryMiB: m.MemoryMiB, extra: m.Extra, limits: o.Limits.orDefault()}
	return result, q.powerOn(ctx, m.Log, o, result)
}

// diskFormat is QEMU's name for the format of a disk's file, or "" for the disk itself,
// which is whatever does not begin as a qcow2 file does.
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
