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

// grubModules are Debian's GRUB for a PC's BIOS.
const grubModules = "/usr/lib/grub/i386-pc"

// MissingGRUB names what InstallGRUB lacks on this machine; none if it can.
func MissingGRUB() []string {
	missing := lacking("grub-mkimage")
	if _, err := os.Stat(filepath.Join(grubModules, "boot.img")); err != nil {
		missing = append(missing, grubModules)
	}
	return missing
}

// InstallGRUB makes a disk with a file system for /boot of its own start by itself, by
// the BIOS: with its default boot entry. In the options of boot entries
// $ignition_firstboot stands for what starts Ignition, as long as a stamp, a file by its
// path in the root file system, is there.
func InstallGRUB(ctx context.Context, disk, stamp string) error {
	err := installGRUB(ctx, disk, stamp)
	if err != nil {
		return fmt.Errorf("cannot install GRUB on %s: %w", disk, err)
	}
	return nil
}

func installGRUB(ctx context.Context, disk, stamp string) (err error) {
	parts, err := partitionsOf(ctx, disk)
	if err != nil {
		return err
	}
	core, err := grubCore(ctx, strings.ReplaceAll(grubConfig, "@STAMP@", stamp))
	if err != nil {
		return err
	}
	boot, err := os.ReadFile(filepath.Join(grubModules, "boot.img"))
	if err != nil {
		return err
	}
	// Between the GPT, which takes 34 sectors, and the first partition.
	const at, sector = 34, 512
	if len(parts) == 0 || parts[0].offset < at*sector+int64(len(core)) {
		return errors.New("there is no room before the first partition")
	}
	// Where boot.img finds the first sector of the core, and that one the others (boot.h
	// and diskboot.S of GRUB).
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

// grubCore is GRUB with what it needs to come to a configuration, and that one.
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
		// Those that linux.mod depends on are the last five.
		"serial", "terminal", "memdisk", "tar", "biosdisk", "part_gpt", "ext2", "search_label", "test", "true", "regexp", "configfile", "normal",
		"boot", "mmap", "relocator", "vbe", "video"); err != nil {
		return nil, err
	}
	return os.ReadFile(image)
}
