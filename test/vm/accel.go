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

// QEMU's ways to run a guest's code.
const (
	hardware = "kvm"
	// One thread for all of a guest's processors: without barriers between them, and
	// without one waiting for the lock of QEMU's devices while the other has it.
	software = "tcg,thread=single"
)

// probeLimits bound the probe: hardware needs a twentieth of that processor time.
func probeLimits() Limits {
	return Limits{Idle: 10 * time.Second, Spin: time.Second, Total: time.Minute}
}

// accelerator finds out how to run a guest. That /dev/kvm opens and starts a
// virtual processor proves nothing: there are hosts whose KVM interprets each
// instruction, a hundred times slower than QEMU does itself. So a small program
// has to end in time on it.
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

// probe reports whether an accelerator runs the probe's program in time.
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
	silent := func() told { return told{} }
	go watch(limited, cancel, cmd.Process.Pid, silent, probeLimits(), lookEvery/20)
	err := cmd.Wait()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.ExitCode() == probeSaid<<1|1, nil // what isa-debug-exit makes of it
}

const probeSaid = 0x31

// probeROM is the firmware of a machine that counts to twenty million and says
// so. x86 starts 16 bytes below the end of its firmware, in real mode.
func probeROM() []byte {
	rom := make([]byte, 64<<10)
	copy(rom[0xff00:], []byte{
		0x66, 0xb9, 0x00, 0x2d, 0x31, 0x01, // mov ecx, 20000000
		0x66, 0x49, // dec ecx
		0x75, 0xfc, // jnz the dec
		0xb0, probeSaid, // mov al, probeSaid
		0xe6, 0xf4, // out 0xf4, al
		0xf4, // hlt
	})
	copy(rom[0xfff0:], []byte{0xe9, 0x0d, 0xff}) // jmp 0xff00
	return rom
}
