// Package box boots the machines of package vm without a virtual machine, in seconds: a machine in a box. Its disk
// is on a loop device, and its PID 1 is the systemd of its default boot entry, in namespaces of its own. What the
// initramfs does is done as there: the deployment's own ostree-prepare-root, with the boot entry's options as
// /proc/cmdline, then the change of root.
//
// The kernel is this host's. So a box does not test a kernel, an initramfs, a boot loader, kexec, or SELinux of the
// guest: docs/dev/testing.md.
package box

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"machine-pivot/test/worlds/vm"
)

// HostAddress is the address at which a box reaches this host, as a guest of QEMU does.
const HostAddress = "10.0.2.2"

// Box is a machine that boots in a box.
type Box struct {
	ports []int // of this host's 127.0.0.1

	mu  sync.Mutex
	pid int // of its PID 1 while it runs, as this host counts; else 0
}

// Use makes a machine boot in a box from now on, and returns the box. The box reaches the given ports of this host's
// 127.0.0.1 at HostAddress, and nothing else. vm.Machine says which of its fields are only QEMU's.
//
// A boot that may be stopped (vm.BootOptions.StopWhen or Cut) is recorded. If it is stopped, the disk is then what
// had been flushed by that moment, as after a power cut.
func Use(m *vm.Machine, ports ...int) *Box {
	b := &Box{ports: ports}
	m.Power = b.power
	return b
}

// errOff is why nothing can run in a box.
var errOff = errors.New("the box is not running")

// Command returns a command that runs in the box, with the box's root, namespaces and cgroup.
func (b *Box) Command(ctx context.Context, argv ...string) (*exec.Cmd, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pid == 0 {
		return nil, fmt.Errorf("cannot run %s: %w", argv[0], errOff)
	}
	inside := []string{"--target=" + strconv.Itoa(b.pid), "--mount", "--pid", "--ipc", "--uts", "--net", "--cgroup", "--time", "--root", "--wd", "--"}
	cmd := exec.CommandContext(ctx, "nsenter", append(inside, argv...)...)
	cmd.Env = environment()
	return cmd, nil
}

// environment is that of a box's PID 1, by which systemd recognizes a container.
func environment() []string {
	return []string{"container=box", "TERM=dumb", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
}

func (b *Box) setPID(pid int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pid = pid
}

// Missing returns what this host lacks for boxes, each with what to do about it; nothing if it can have one.
func Missing() []string {
	if os.Geteuid() != 0 {
		return []string{"root: run it as root"}
	}
	var missing []string
	if err := enterNamespaces(); err != nil {
		missing = append(missing, fmt.Sprintf("the privilege to make namespaces and mounts (%v): in a container, run that with --privileged", err))
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		missing = append(missing, "loop devices: load the module loop on the host; in a container, pass /dev of the host")
	}
	if group, err := newGroup(); err != nil {
		missing = append(missing, fmt.Sprintf("cgroup2 (%v): boot the host with a kernel that has it; in a container, run that with --privileged", err))
	} else if err := group.remove(); err != nil {
		missing = append(missing, fmt.Sprintf("a cgroup2 that can be written to: %v", err))
	}
	return missing
}
