package host

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
)

// reboot asks systemd for an orderly reboot and returns when the request is accepted. It fails
// while an inhibitor lock blocks shutdown.
func reboot(ctx context.Context) error {
	if err := blocked(ctx); err != nil {
		return err
	}
	return startTarget(ctx, "reboot.target")
}

// kexec loads a kernel and asks systemd for an orderly kexec; otherwise it is like reboot. On
// failure it unloads the kernel, so that a later manual reboot is an ordinary one. Loading takes seconds, so
// afterwards still asks whether the kernel may be started.
func kexec(ctx context.Context, next Kernel, still func() error) error {
	if err := blocked(ctx); err != nil {
		return err
	}
	if err := next.load(); err != nil {
		return err
	}
	err := still()
	if err != nil {
		err = fault.New(fault.Unavailable, "cannot start the kernel that is loaded: %w", err) // the next try takes another way
	} else {
		err = startTarget(ctx, "kexec.target")
	}
	if err != nil {
		err = errors.Join(err, unix.KexecFileLoad(-1, -1, "", unix.KEXEC_FILE_UNLOAD))
	}
	return err
}

// softly asks systemd for a soft reboot; otherwise it is like reboot.
func softly(ctx context.Context) error {
	if err := blocked(ctx); err != nil {
		return err
	}
	return startTarget(ctx, "soft-reboot.target")
}

// load loads the kernel with kexec_file_load(2). OS images need not have kexec-tools, whose older
// system call never checks signatures.
func (k Kernel) load() error {
	kernel, err := os.Open(k.Image)
	if err != nil {
		return fmt.Errorf("cannot load the kernel: %w", err)
	}
	defer kernel.Close()
	initrd, flags := -1, unix.KEXEC_FILE_NO_INITRAMFS
	if k.Initrd != "" {
		f, err := os.Open(k.Initrd)
		if err != nil {
			return fmt.Errorf("cannot load the kernel: %w", err)
		}
		defer f.Close()
		initrd, flags = int(f.Fd()), 0
	}
	if err := unix.KexecFileLoad(int(kernel.Fd()), initrd, k.Cmdline, flags); err != nil {
		return fmt.Errorf("cannot load the kernel: the running one refuses %s: %w", k.Image, err)
	}
	return nil
}
