package vm

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
)

// kernelScript is not part of the recipe, because it modifies a copy of a base.
//
//go:embed kernel.sh
var kernelScript string

// Kernel returns the files of another kernel for guests of a spec. They are below /usr/lib/modules: those of the kernel
// package that a Debian package, such as linux-image-rt-amd64, depends on. The guest's own dracut makes their
// initramfs, as if the kernel were installed in B. It builds what is not cached.
func (b *Builder) Kernel(ctx context.Context, spec GuestSpec, debian string) (files []TreeFile, err error) {
	err = b.locked(ctx, func(c cache) error {
		base, err := c.base(ctx, spec.suiteA(), spec.SELinux.variant())
		if err != nil {
			return err
		}
		dir, err := base.kernel(ctx, debian)
		if err != nil {
			return err
		}
		files, err = TreeFiles(dir)
		return err
	})
	return files, err
}

// kernel returns a directory with a kernel's files.
func (c cache) kernel(ctx context.Context, debian string) (string, error) {
	// Drivers that the guest's own kernel has built in, such as ext4, are modules in this one.
	const dracutModule = "kernel-modules"
	sum := sha256.Sum256([]byte(kernelScript + dracutModule))
	return c.entry("kernel-"+debian+"-"+shortSum(sum[:]), "the guest's kernel of "+debian, func(dir string) error {
		tree := filepath.Join(dir, "tree")
		if err := c.checkout(ctx, tree, nil); err != nil {
			return err
		}
		if err := runPrivate(ctx, "bash", "-c", kernelScript, "kernel.sh", tree, debian); err != nil {
			return err
		}
		releases, err := filepath.Glob(filepath.Join(tree, "usr/lib/modules/*"))
		if err != nil || len(releases) != 1 {
			return fmt.Errorf("kernels %q: %w", releases, err)
		}
		err = withScripts(func(scripts string) error {
			return runPrivate(ctx, "bash", filepath.Join(scripts, "guest/initramfs.sh"), tree, filepath.Join(dir, "initramfs.img"), dracutModule)
		})
		if err != nil {
			return err
		}
		modules := filepath.Join(dir, "usr/lib/modules")
		if err := os.MkdirAll(modules, 0o755); err != nil {
			return err
		}
		modules = filepath.Join(modules, filepath.Base(releases[0]))
		if err := os.Rename(releases[0], modules); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(dir, "initramfs.img"), filepath.Join(modules, "initramfs.img")); err != nil {
			return err
		}
		return os.RemoveAll(tree)
	})
}
