package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
)

// storageScript is not part of the recipe, because it modifies a copy of a base.
//
//go:embed storage.sh
var storageScript string

// How many entries of each kind the cache of a base keeps.
const (
	keepStorage = 1
	keepEarly   = 8
)

// Storage returns files for guests of a spec with which their root can be on LVM, md, LUKS or multipath, or in btrfs: programs, kernel
// modules, and the kernel's configuration. EarlyWith makes the initramfs for them. It builds what is not cached.
func (b *Builder) Storage(ctx context.Context, spec GuestSpec) (files []TreeFile, err error) {
	packages, err := b.Packages(ctx, spec, []string{"lvm2", "mdadm", "cryptsetup-bin", "systemd-cryptsetup", "btrfs-progs", "multipath-tools", "thin-provisioning-tools", "procps"}, nil)
	if err != nil {
		return nil, err
	}
	err = b.locked(ctx, func(c cache) error {
		rootfs, err := c.rootfs(ctx, spec.suiteA())
		if err != nil {
			return err
		}
		base, err := c.base(ctx, spec.suiteA(), spec.SELinux.variant())
		if err != nil {
			return err
		}
		files, err = base.storage(ctx, rootfs, packages)
		return err
	})
	return files, err
}

// storage returns the files of Storage, from a directory with the files of Debian packages.
func (c cache) storage(ctx context.Context, rootfs, packages string) ([]TreeFile, error) {
	sum := sha256.Sum256([]byte(storageScript + packages))
	const files = "files"
	dir, err := c.entry("storage-"+shortSum(sum[:]), "what a guest's root on LVM, md, LUKS, multipath or btrfs needs", func(dir string) error {
		tree := filepath.Join(dir, "tree")
		if err := c.checkout(ctx, tree, nil); err != nil {
			return err
		}
		if err := runPrivate(ctx, "bash", "-c", storageScript, "storage.sh", tree, filepath.Join(dir, files), rootfs, packages); err != nil {
			return err
		}
		return os.RemoveAll(tree)
	})
	if err != nil {
		return nil, err
	}
	if _, err := c.prune("storage-", keepStorage); err != nil {
		return nil, err
	}
	return TreeFiles(filepath.Join(dir, files))
}

// EarlyWith returns an initramfs for guests of a spec that have further files, with further modules of dracut. It builds what
// is not cached.
func (b *Builder) EarlyWith(ctx context.Context, spec GuestSpec, overlay []TreeFile, modules ...string) (file TreeFile, err error) {
	err = b.locked(ctx, func(c cache) error {
		base, err := c.base(ctx, spec.suiteA(), spec.SELinux.variant())
		if err != nil {
			return err
		}
		kernel, err := modulesDir(ctx, filepath.Join(base.dir, "repo"), baseRef)
		if err != nil {
			return err
		}
		image, err := base.earlyWith(ctx, overlay, modules)
		file = TreeFile{Path: path.Join(kernel, "initramfs.img"), Mode: 0o644, Source: image}
		return err
	})
	return file, err
}

// earlyWith returns the file with the initramfs of EarlyWith.
func (c cache) earlyWith(ctx context.Context, overlay []TreeFile, modules []string) (string, error) {
	sum := sha256.New()
	if err := addAll(sum, overlay); err != nil {
		return "", err
	}
	fmt.Fprintf(sum, "%q", modules)
	const image = "initramfs.img"
	dir, err := c.entry("early-"+shortSum(sum.Sum(nil)), fmt.Sprintf("the guest's initramfs with %q", modules), func(dir string) error {
		return c.makeInitramfs(ctx, dir, filepath.Join(dir, image), overlay, modules)
	})
	if err != nil {
		return "", err
	}
	_, err = c.prune("early-", keepEarly)
	return filepath.Join(dir, image), err
}

// makeInitramfs makes an initramfs in a tree below dir, which it removes.
func (c cache) makeInitramfs(ctx context.Context, dir, image string, overlay []TreeFile, modules []string) error {
	tree := filepath.Join(dir, "tree")
	if err := c.checkout(ctx, tree, overlay); err != nil {
		return err
	}
	err := withScripts(func(scripts string) error {
		script := filepath.Join(scripts, "guest/initramfs.sh")
		return runPrivate(ctx, append([]string{"bash", script, tree, image}, modules...)...)
	})
	if err != nil {
		return err
	}
	content, err := os.ReadFile(image)
	if err != nil {
		return err
	}
	// On a busy host, dracut once found no libraries and ended with status 0. The cache would keep that.
	if !bytes.Contains(content, []byte("/libc.so.6\x00")) {
		return fmt.Errorf("dracut has made %s without libraries", image)
	}
	return os.RemoveAll(tree)
}
