package vm

import (
	"archive/tar"
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed grub.cfg
var grubConfig string

//go:embed grubmenu.cfg
var grubMenu string

// grubModules is where Debian has GRUB's modules for a PC's BIOS.
const grubModules = "/usr/lib/grub/i386-pc"

// MissingGRUB returns what this host lacks for InstallGRUB; nothing if it can run.
func MissingGRUB() []string {
	missing := lacking("grub-mkimage")
	if _, err := os.Stat(filepath.Join(grubModules, "boot.img")); err != nil {
		missing = append(missing, grubModules)
	}
	return missing
}

// InstallGRUB installs GRUB on a disk with a separate /boot, so that the BIOS boots the disk's
// default boot entry. GRUB replaces $ignition_firstboot in the options of boot entries with the
// kernel arguments that start Ignition, as long as the file stamp, a path in the root file
// system, exists.
func InstallGRUB(ctx context.Context, disk, stamp string) error {
	return installGRUB(ctx, disk, strings.ReplaceAll(grubConfig, "@STAMP@", stamp))
}

// InstallStaticGRUB is like InstallGRUB, for a GRUB with a static configuration: it executes StaticGRUB
// below /boot, in which it knows the command blscfg, and boots an entry of its menu.
func InstallStaticGRUB(ctx context.Context, disk string) error {
	return installGRUB(ctx, disk, grubMenu)
}

// StaticGRUB is the path of GRUB's configuration for InstallStaticGRUB.
const StaticGRUB = "/boot/grub2/grub.cfg"

// FirmwareGRUB is the path of a script that GRUB of InstallStaticGRUB executes first, if it is there: what a
// firmware with more features than QEMU's would have done.
const FirmwareGRUB = "/boot/grub2/firmware.cfg"

// FirmwareWatchdog is a script for FirmwareGRUB. It starts the watchdog of QEMU's device i6300esb (Intel's
// document 300641-004, chapter 16), with five minutes: two stages of 150,000 ticks, of a millisecond each. Each
// access to a register of the timer is unlocked by two bytes. Linux stops the watchdog when it loads the driver.
const FirmwareWatchdog = `setpci -d 8086:25ab -v bar 10.l
regexp --set=1:bar '^(.*)0$' "$bar"
for stage in 0 4; do
  write_byte 0x${bar}c 0x80
  write_byte 0x${bar}c 0x86
  write_dword 0x${bar}$stage 150000
done
setpci -d 8086:25ab 60.w=3
setpci -d 8086:25ab 68.b=2
`

// installGRUB installs GRUB with a configuration in its core image.
func installGRUB(ctx context.Context, disk, config string) error {
	err := writeGRUB(ctx, disk, config)
	if err != nil {
		return fmt.Errorf("cannot install GRUB on %s: %w", disk, err)
	}
	return nil
}

func writeGRUB(ctx context.Context, disk, config string) (err error) {
	parts, err := partitionsOf(ctx, disk)
	if err != nil {
		return err
	}
	core, err := grubCore(ctx, config)
	if err != nil {
		return err
	}
	boot, err := os.ReadFile(filepath.Join(grubModules, "boot.img"))
	if err != nil {
		return err
	}
	// The core is between the GPT, which takes 34 sectors, and the first partition.
	const at, sector = 34, 512
	if len(parts) == 0 || parts[0].offset < at*sector+int64(len(core)) {
		return errors.New("there is no room before the first partition")
	}
	// The offsets at which boot.img has the number of the core's first sector, and that sector
	// the number of the next one (GRUB's boot.h and diskboot.S).
	const firstSector, restOfSectors, partitionTable = 0x5c, 0x1f4, 440
	binary.LittleEndian.PutUint64(boot[firstSector:], at)
	binary.LittleEndian.PutUint64(core[restOfSectors:], at+1)
	f, err := os.OpenFile(disk, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, bootErr := f.WriteAt(boot[:partitionTable], 0)
	_, coreErr := f.WriteAt(core, at*sector)
	return errors.Join(bootErr, coreErr, f.Close())
}

// grubCore returns GRUB's core image with the modules that it needs and the configuration.
func grubCore(ctx context.Context, config string) (core []byte, err error) {
	linux, err := os.ReadFile(filepath.Join(grubModules, "linux.mod"))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "vm-grub-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var files bytes.Buffer
	archive := tar.NewWriter(&files)
	for _, f := range []TreeFile{{Path: "boot/grub/grub.cfg", Content: []byte(config)}, {Path: "boot/grub/i386-pc/linux.mod", Content: linux}} {
		header := tar.Header{Name: f.Path, Mode: 0o644, Size: int64(len(f.Content)), Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.Content); err != nil {
			return nil, err
		}
	}
	disk, image := filepath.Join(dir, "files.tar"), filepath.Join(dir, "core.img")
	if err := errors.Join(archive.Close(), os.WriteFile(disk, files.Bytes(), 0o644)); err != nil {
		return nil, err
	}
	if _, err := run(ctx, "grub-mkimage", "-O", "i386-pc", "-o", image, "-m", disk, "-p", "(memdisk)/boot/grub",
		// linux.mod depends on the last five.
		"serial", "terminal", "memdisk", "tar", "biosdisk", "part_gpt", "ext2", "xfs", "loadenv", "search_label", "search_fs_file", "test", "true", "regexp", "configfile", "normal", "password",
		"boot", "mmap", "relocator", "vbe", "video",
		// For what a test has the machine's firmware do: FirmwareGRUB.
		"setpci", "memrw"); err != nil {
		return nil, err
	}
	return os.ReadFile(image)
}
