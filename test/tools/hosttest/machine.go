package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"machine-pivot/test/worlds/vm"
)

// machine is the virtual machine under test.
type machine interface {
	Boot(ctx context.Context, o vm.BootOptions) (*vm.BootResult, error)
}

// machine returns a machine with the Ignition config and the system on a disk in dir.
func (s settings) machine(ctx context.Context, dir, url string, config []byte) (machine, error) {
	text, err := pointer(url, config)
	if err != nil {
		return nil, err
	}
	file, disk := filepath.Join(dir, "pointer.ign"), filepath.Join(dir, "disk")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	extra := append([]string{"-fw_cfg", "name=opt/com.coreos/config,file=" + file}, s.qemu...)
	if info, err := os.Stat(s.image); err == nil && info.IsDir() {
		return &vm.Machine{Disk: disk, MemoryMiB: s.memoryMiB, Log: s.console, Extra: extra}, s.diskOf(ctx, dir, disk)
	}
	if out, err := exec.CommandContext(ctx, "cp", "--reflink=auto", "--sparse=always", s.image, disk).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot copy the disk image: %w\n%s", err, out)
	}
	return &vm.Installed{Disk: disk, MemoryMiB: s.memoryMiB, Log: s.console, Extra: extra}, nil
}

// treeDiskMiB is enough for two large systems and the image in between. The disk is sparse.
const treeDiskMiB = 24 << 10

// diskOf creates a disk with the system in a directory, like an installer: deployed by ostree, with
// a boot partition, before its first boot. The harness acts as the boot loader.
func (s settings) diskOf(ctx context.Context, dir, disk string) error {
	layout := vm.Layout{SeparateBoot: true}
	if missing := layout.Missing(); len(missing) > 0 {
		return fmt.Errorf("cannot make a disk of %s: lacking %v", s.image, missing)
	}
	system, err := vm.SystemTree(ctx, s.image, dir)
	if err != nil {
		return err
	}
	return system.Disk(ctx, disk, vm.DiskSpec{
		Layout: layout, SizeMiB: treeDiskMiB,
		KernelArgs: append([]string{"ignition.platform.id=qemu"}, s.kargs...),
		RepoConfig: []string{"sysroot.readonly=true"},
		// systemd then detects the first boot and enables units by presets.
		Files: []vm.TreeFile{{Path: "/etc/machine-id", Mode: 0o444, Content: []byte("uninitialized\n")}},
	})
}
