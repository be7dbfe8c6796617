package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// kernelFiles completes /proc and mounts /sys. What would change this host is read-only; systemd takes that as the
// sign not to start udev. What a boot has of its own is shown in place of what the host's kernel says.
func (b *initramfs) kernelFiles() error {
	for _, name := range []string{"proc/sys", "proc/sysrq-trigger"} {
		if err := b.readOnly(name); err != nil && !errors.Is(err, unix.ENOENT) { // a kernel may lack the second one
			return err
		}
	}
	if err := mount("sysfs", b.path("sysroot/sys"), "sysfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, ""); err != nil {
		return err
	}
	return errors.Join(
		b.oneProc(),
		b.overlay("boot_id", bootID()+"\n", "proc/sys/kernel/random/boot_id"),
		b.overlay("consoles", strings.Join(b.consoles(), " ")+"\n", "sysroot/sys/class/tty/console/active"))
}

// oneProc keeps systemd 252 from giving sandboxed units a /proc of their own: that has this host's command line and
// boot ID. Newer ones protect the box's /proc instead.
func (b *initramfs) oneProc() error {
	old, err := filepath.Glob(b.path("usr/lib/*/systemd/libsystemd-shared-252.so"))
	if err != nil || len(old) == 0 {
		return err
	}
	dir := b.path("run/systemd/system/service.d")
	return errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "box.conf"), []byte("[Service]\nProtectKernelTunables=no\nProtectControlGroups=no\n"), 0o644))
}

// readOnly mounts a file or directory on itself, read-only.
func (b *initramfs) readOnly(name string) error {
	at := b.path(name)
	if err := mount(at, at, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// bootID returns a random UUID: each boot of a machine has another one.
func bootID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// cgroup makes the box's cgroup its root of cgroup2.
func (b *initramfs) cgroup() error {
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("cannot make a namespace for cgroups: %w", err)
	}
	return mount("cgroup2", b.path("sysroot/sys/fs/cgroup"), "cgroup2", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, "")
}

// clock begins the box's time since boot now, for the program that PID 1 executes. Linux before 6.3 does that only for
// its children, and one without time namespaces for none: there the time since boot is that of the host.
func (b *initramfs) clock() error {
	if err := unix.Unshare(unix.CLONE_NEWTIME); err != nil {
		return nil
	}
	offsets := ""
	for name, id := range map[string]int32{"monotonic": unix.CLOCK_MONOTONIC, "boottime": unix.CLOCK_BOOTTIME} {
		var now unix.Timespec
		if err := unix.ClockGettime(id, &now); err != nil {
			return fmt.Errorf("cannot read the clock: %w", err)
		}
		// The offset is negative, its nanoseconds are not. Whole seconds would begin a boot up to a second before the box.
		offsets += fmt.Sprintf("%s -%d %d\n", name, now.Sec+1, time.Second.Nanoseconds()-max(1, now.Nsec))
	}
	if err := os.WriteFile("/proc/self/timens_offsets", []byte(offsets), 0); err != nil {
		return fmt.Errorf("cannot set the clock: %w", err)
	}
	return nil
}

// network gives the box an interface, which its own systemd-networkd configures, and this host's address. Both are
// in the box's namespace: what connects them to the host is a listener there.
func (b *initramfs) network() error {
	ip := "/usr/bin/ip"
	if _, err := os.Stat(b.path(ip)); err != nil {
		ip = "/usr/sbin/ip"
	}
	for _, arguments := range []string{
		"link add e0 type veth peer name host", "address add " + b.HostAddress + "/32 dev host", "link set host up", "link set e0 up",
	} {
		if err := b.run(append([]string{ip}, strings.Fields(arguments)...)...); err != nil {
			return err
		}
	}
	return nil
}
