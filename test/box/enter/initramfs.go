package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"machine-pivot/test/box/inside"
	"machine-pivot/test/worlds/loop"
)

// initramfs is the root directory before the change of root: a tmpfs with the /usr of the system to start.
type initramfs struct {
	inside.Config
	options []string // of the kernel command line
}

// newInitramfs mounts the tmpfs and what an initramfs has in it: /dev, /proc, /run.
func newInitramfs(c inside.Config) (*initramfs, error) {
	b := &initramfs{Config: c, options: strings.Fields(c.Cmdline)}
	err := errors.Join(
		mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		mount("tmpfs", c.Root, "tmpfs", 0, "mode=755"))
	for _, dir := range []string{"dev", "proc", "run", "sys", "sysroot", "usr", "etc", "tmp"} {
		err = errors.Join(err, os.Mkdir(b.path(dir), 0o755))
	}
	if err != nil {
		return nil, err
	}
	return b, errors.Join(
		mount("tmpfs", b.path("dev"), "tmpfs", unix.MS_NOSUID, "mode=755"),
		mount("proc", b.path("proc"), "proc", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, ""),
		mount("tmpfs", b.path("run"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"),
		b.overlay("cmdline", c.Cmdline+"\n", "proc/cmdline"),
		b.nodes())
}

// path returns a path in the initramfs. After prepareRoot, sysroot there is the root of the system to start.
func (b *initramfs) path(name string) string { return filepath.Join(b.Root, name) }

// mountRoot mounts the root file system. An initramfs mounts it read-only unless the command line has rw.
func (b *initramfs) mountRoot() error {
	flags := uintptr(unix.MS_RDONLY)
	if slices.Contains(b.options, "rw") {
		flags = 0
	}
	return b.mountDisk(b.FileSystems[0], "sysroot", flags)
}

func (b *initramfs) mountDisk(f inside.FileSystem, at string, flags uintptr) error {
	device, err := loop.Attach(os.NewFile(inside.Disk, "disk"), f.Offset, f.Size, b.path("dev"))
	if err != nil {
		return err
	}
	options := ""
	if f.Kind == "xfs" {
		options = "nouuid" // a copy with the same UUID may be mounted
	}
	return errors.Join(mount(device.Name(), b.path(at), f.Kind, flags, options), device.Close())
}

// lendUsr gives the initramfs the programs of the deployment that the command line names. They are not those of this
// host, because each release of libostree makes its deployments for its own ostree-prepare-root.
func (b *initramfs) lendUsr() error {
	i := slices.IndexFunc(b.options, func(o string) bool { return strings.HasPrefix(o, "ostree=") })
	if i < 0 {
		return errors.New("the boot entry has no ostree=")
	}
	deployment, err := filepath.EvalSymlinks(b.path("sysroot" + strings.TrimPrefix(b.options[i], "ostree=")))
	if err != nil {
		return fmt.Errorf("the boot entry names no deployment: %w", err)
	}
	err = mount(filepath.Join(deployment, "usr"), b.path("usr"), "", unix.MS_BIND, "")
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		err = errors.Join(err, os.Symlink("usr/"+name, b.path(name)))
	}
	return err
}

// prepareRoot makes the deployment the root below sysroot, and mounts a separate /boot as /etc/fstab would: in a
// container systemd ignores what is on a device.
func (b *initramfs) prepareRoot() error {
	if err := b.run("/usr/lib/ostree/ostree-prepare-root", "/sysroot"); err != nil {
		return err
	}
	for _, f := range b.FileSystems {
		if f.Boot {
			return b.mountDisk(f, "sysroot/boot", 0)
		}
	}
	return nil
}

// run runs a program in the initramfs.
func (b *initramfs) run(argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Path = argv[0] // below Root
	cmd.Err = nil
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: b.Root}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot run %s: %w: %s", argv[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

// switchRoot makes sysroot the root directory, as the initramfs's systemd does.
func (b *initramfs) switchRoot() error {
	for _, dir := range []string{"dev", "proc", "run"} {
		if err := mount(b.path(dir), b.path("sysroot/"+dir), "", unix.MS_MOVE, ""); err != nil {
			return err
		}
	}
	if err := os.Chdir(b.path("sysroot")); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("cannot change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("cannot change the root: %w", err)
	}
	return os.Chdir("/")
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("cannot mount %s: %w", target, err)
	}
	return nil
}

// overlay shows a text as a file that the kernel has.
func (b *initramfs) overlay(name, text, over string) error {
	file := b.path(name)
	return errors.Join(os.WriteFile(file, []byte(text), 0o444), mount(file, b.path(over), "", unix.MS_BIND, ""))
}
