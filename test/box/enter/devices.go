package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// loops is how many nodes of loop devices a box has: composefs before Linux 6.12 needs them.
const loops = 32

// nodes makes the device nodes that each Linux system has, by the numbers of admin-guide/devices.txt.
func (b *initramfs) nodes() error {
	type node struct {
		name         string
		mode         uint32
		major, minor uint32
	}
	all := []node{
		{"null", unix.S_IFCHR | 0o666, 1, 3}, {"zero", unix.S_IFCHR | 0o666, 1, 5}, {"full", unix.S_IFCHR | 0o666, 1, 7},
		{"random", unix.S_IFCHR | 0o666, 1, 8}, {"urandom", unix.S_IFCHR | 0o666, 1, 9}, {"tty", unix.S_IFCHR | 0o666, 5, 0},
		{"fuse", unix.S_IFCHR | 0o666, 10, 229}, {"loop-control", unix.S_IFCHR | 0o600, 10, 237},
	}
	for n := range uint32(loops) {
		all = append(all, node{fmt.Sprint("loop", n), unix.S_IFBLK | 0o600, 7, n})
	}
	for _, n := range all {
		if err := unix.Mknod(b.path("dev/"+n.name), n.mode, int(unix.Mkdev(n.major, n.minor))); err != nil {
			return fmt.Errorf("cannot make /dev/%s: %w", n.name, err)
		}
	}
	return nil
}

// devices completes /dev with what devtmpfs and early userspace have: terminals, links and the consoles.
func (b *initramfs) devices() error {
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, b.path("dev/"+name)); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Mkdir(b.path("dev/pts"), 0o755), os.Mkdir(b.path("dev/shm"), 0o755)); err != nil {
		return err
	}
	const report = "ttyS1" // see vm.BootResult.Reported
	err := errors.Join(
		mount("devpts", b.path("dev/pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"),
		mount("tmpfs", b.path("dev/shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"),
		b.terminal(b.Report, report))
	for _, name := range append(b.consoles(), "console") {
		err = errors.Join(err, b.terminal(b.Console, name))
	}
	return err
}

// consoles returns the consoles that the command line names.
func (b *initramfs) consoles() (names []string) {
	for _, option := range b.options {
		if name, found := strings.CutPrefix(option, "console="); found {
			name, _, _ = strings.Cut(name, ",")
			names = append(names, name)
		}
	}
	return names
}

// terminal shows a terminal of this host as a device.
func (b *initramfs) terminal(of, name string) error {
	file := b.path("dev/" + name)
	return errors.Join(os.WriteFile(file, nil, 0o600), mount(of, file, "", unix.MS_BIND, ""))
}
