package vm

import (
	"context"
	"crypto/sha256"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// initramfs makes the initramfs of the base system in the cache c, by the base's own dracut, and returns its file. It
// has an overlay's dracut modules, with the overlay's files that they take.
func (c cache) initramfs(ctx context.Context, overlay []TreeFile) (string, error) {
	modules := dracutModules(overlay)
	if len(modules) == 0 {
		overlay = nil // the same for all
	}
	sum := sha256.New()
	if err := addAll(sum, overlay); err != nil {
		return "", err
	}
	const image = "initramfs.img"
	dir, err := c.entry("initramfs-"+shortSum(sum.Sum(nil)), "the guest's initramfs", func(dir string) error {
		tree := filepath.Join(dir, "tree")
		if err := c.checkout(ctx, tree, overlay); err != nil {
			return err
		}
		err := withScripts(func(scripts string) error {
			script := filepath.Join(scripts, "guest/initramfs.sh")
			return runPrivate(ctx, append([]string{"bash", script, tree, filepath.Join(dir, image)}, modules...)...)
		})
		if err != nil {
			return err
		}
		return os.RemoveAll(tree)
	})
	return filepath.Join(dir, image), err
}

// checkout makes a directory with the base system and files on top.
func (c cache) checkout(ctx context.Context, tree string, overlay []TreeFile) error {
	repo := "--repo=" + filepath.Join(c.dir, "repo")
	if _, err := run(ctx, "ostree", "checkout", repo, "--require-hardlinks", baseRef, tree); err != nil {
		return err
	}
	return writeTree(tree, defaults(overlay))
}

// dracutModules names the dracut modules among files, without their numbers.
func dracutModules(files []TreeFile) []string {
	var modules []string
	for _, f := range files {
		dir, file := path.Split(f.Path)
		parent, module := path.Split(strings.TrimSuffix(dir, "/"))
		if file == "module-setup.sh" && parent == "/usr/lib/dracut/modules.d/" {
			modules = append(modules, strings.TrimLeft(module, "0123456789"))
		}
	}
	slices.Sort(modules)
	return modules
}
