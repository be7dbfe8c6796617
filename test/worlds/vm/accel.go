package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Values of QEMU's -accel option.
const (
	hardware = "kvm"
	// One thread for all virtual CPUs needs no memory barriers between them, and no CPU waits
	// while another one holds QEMU's device lock.
	software = "tcg,thread=single"
)

// probeLimits are the limits of the probe. With working hardware virtualization it needs a
// twentieth of this CPU time.
func probeLimits() Limits {
	return Limits{Idle: 10 * time.Second, Spin: time.Second, Total: time.Minute}
}

// accelerator returns the -accel value to use on this host. It is not enough that /dev/kvm can
// be opened and starts a virtual CPU: on some hosts KVM interprets each instruction, a hundred
// times slower than QEMU's own emulation. So a small program must finish on KVM in time.
func accelerator(ctx context.Context) (string, error) {
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return software, nil
	}
	if err := kvm.Close(); err != nil {
		return "", fmt.Errorf("cannot close /dev/kvm: %w", err)
	}
	dir, err := os.MkdirTemp("", "vm-probe-*")
	if err != nil {
		return "", fmt.Errorf("cannot probe KVM: %w", err)
	}
	works, err := probe(ctx, hardware, dir)
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		return "", fmt.Errorf("cannot probe KVM: %w", err)
	}
	if works {
		return hardware, nil
	}
	return software, nil
}

// probe reports whether an accelerator runs the probe program in time.
func probe(ctx context.Context, accel, dir string) (bool, error) {
	rom := filepath.Join(dir, "rom")
	if err := os.WriteFile(rom, probeROM(), 0o644); err != nil {
		return false, err
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(limited, "qemu-system-x86_64", "-accel", accel, "-machine", "q35", "-cpu", "max", "-m", "16",
		"-nodefaults", "-display", "none", "-bios", rom, "-device", "isa-debug-exit,iobase=0xf4,iosize=1")
	if err := cmd.Start(); err != nil {
		return false, err
	}
	silent := func() consoleState { return consoleState{} }
	go watch(limited, cancel, processProgress(cmd.Process.Pid), silent, probeLimits(), sampleInterval/20)
	err := cmd.Wait()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.ExitCode() == probeCode<<1|1, nil // how isa-debug-exit encodes the value
}

// probeCode is the value that the probe program writes to the isa-debug-exit device.
const probeCode = 0x31

// probeROM returns the firmware of a machine that counts down from twenty million and then writes
// probeCode. An x86 processor starts in real mode, 16 bytes below the end of the firmware.
func probeROM() []byte {
	rom := make([]byte, 64<<10)
	copy(rom[0xff00:], []byte{
		0x66, 0xb9, 0x00, 0x2d, 0x31, 0x01, // mov ecx, 20000000
		0x66, 0x49, // dec ecx
		0x75, 0xfc, // jnz the dec
		0xb0, probeCode, // mov al, probeCode
		0xe6, 0xf4, // out 0xf4, al
		0xf4, // hlt
	})
	copy(rom[0xfff0:], []byte{0xe9, 0x0d, 0xff}) // jmp 0xff00
	return rom
}
