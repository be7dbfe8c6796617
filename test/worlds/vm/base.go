package vm

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// recipe is what a base system and its initramfs are made from, this file
// included: whatever changes in it, both are built anew.
//
//go:embed guest base.go initramfs.go
var recipe embed.FS

// policiesDir is where a base keeps A's SELinux policy, as "a", and those that B may
// have: the roots of trees with nothing but /etc/selinux.
const policiesDir = "policies"

// baseRef is the name of the base system in its repositories.
const baseRef = "base"

// base makes a directory with the base system of a Debian release, without what a spec adds: a bare repository "repo"
// and an archive repository "archive". variant is one of tree.sh's, or "". The directory is a cache for what is made on
// top of the base, and is removed with it.
func (c cache) base(ctx context.Context, suite, variant string) (cache, error) {
	key, err := sumFiles(recipe)
	if err != nil {
		return cache{}, err
	}
	name := strings.TrimSuffix(suite+"-"+variant, "-")
	dir, err := c.entry("base-"+name+"-"+key, "the guest's base system ("+name+")", func(dir string) error {
		rootfs, err := c.rootfs(ctx, suite)
		if err != nil {
			return err
		}
		tree := filepath.Join(dir, "tree")
		if err := makeTree(ctx, rootfs, tree, filepath.Join(dir, policiesDir), variant); err != nil {
			return err
		}
		if err := commitBase(ctx, dir, tree); err != nil {
			return err
		}
		return os.RemoveAll(tree)
	})
	return cache{dir: dir, log: c.log}, err
}

// rootfs makes a tarball of Debian, the only stage that downloads.
func (c cache) rootfs(ctx context.Context, suite string) (string, error) {
	const script = "guest/rootfs.sh"
	text, err := recipe.ReadFile(script)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	dir, err := c.entry("rootfs-"+suite+"-"+shortSum(sum[:]), "the guest's Debian packages ("+suite+")", func(dir string) error {
		return withScripts(func(scripts string) error {
			return runPrivate(ctx, "bash", filepath.Join(scripts, script), suite, filepath.Join(dir, "rootfs.tar"))
		})
	})
	return filepath.Join(dir, "rootfs.tar"), err
}

// makeTree unpacks Debian and makes it the tree of an ostree commit. The SELinux
// policies of A and of B go into a directory of their own.
func makeTree(ctx context.Context, rootfs, tree, policies, variant string) error {
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	if _, err := run(ctx, "tar", "-C", tree, "--numeric-owner", "-xf", rootfs); err != nil {
		return err
	}
	return withScripts(func(scripts string) error {
		return runPrivate(ctx, "bash", filepath.Join(scripts, "guest/tree.sh"), tree, policies, variant)
	})
}

// commitBase commits a tree to a new bare repository, and that to a new archive.
// Files get the labels of the tree's SELinux policy, if it has one. Nobody may change
// them later: versions and images are made of these objects.
func commitBase(ctx context.Context, dir, tree string) error {
	repo, archive := filepath.Join(dir, "repo"), filepath.Join(dir, "archive")
	for _, argv := range [][]string{
		{"ostree", "init", "--repo=" + repo, "--mode=bare"},
		{"ostree", "config", "--repo=" + repo, "set", "core.fsync", "false"},
		{"ostree", "commit", "--repo=" + repo, "--branch=" + baseRef, "--tree=dir=" + tree, "--consume", "--selinux-policy=" + tree},
		{"ostree", "init", "--repo=" + archive, "--mode=archive"},
		{"ostree", "config", "--repo=" + archive, "set", "core.fsync", "false"},
		{"ostree", "config", "--repo=" + archive, "set", "archive.zlib-level", "1"},
		{"ostree", "pull-local", "--repo=" + archive, repo, baseRef},
	} {
		if _, err := run(ctx, argv...); err != nil {
			return err
		}
	}
	return nil
}

// withScripts calls f with a directory that has the recipe's files.
func withScripts(f func(dir string) error) (err error) {
	dir, err := os.MkdirTemp("", "vm-recipe-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.CopyFS(dir, recipe); err != nil {
		return err
	}
	return f(dir)
}

// sumFiles is a hash of the names and contents of all files.
func sumFiles(files fs.FS) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, path)
		fmt.Fprintf(sum, "%q %x\n", path, sha256.Sum256(data))
		return err
	})
	return shortSum(sum.Sum(nil)), err
}

func shortSum(sum []byte) string { return hex.EncodeToString(sum)[:16] }
