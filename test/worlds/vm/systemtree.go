package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// SystemTree makes a guest from a directory with a complete system, such as an "ostree checkout" or
// the unpacked file system of a container image. The system is version A; there is no B. Nothing is
// added: kernel and initramfs are those in /usr/lib/modules, where ostree expects them. dir is a
// directory for the guest's repository.
func SystemTree(ctx context.Context, tree, dir string) (*Guest, error) {
	commit, err := commitTree(ctx, tree, dir)
	if err != nil {
		return nil, fmt.Errorf("cannot make a guest of %s: %w", tree, err)
	}
	return &Guest{CommitA: commit, repoA: filepath.Join(dir, "repo")}, nil
}

func commitTree(ctx context.Context, tree, dir string) (commit string, err error) {
	for _, file := range []string{"vmlinuz", "initramfs.img"} {
		found, err := filepath.Glob(filepath.Join(tree, "usr/lib/modules/*", file))
		if err != nil {
			return "", err
		}
		if len(found) != 1 {
			return "", fmt.Errorf("it has %d files usr/lib/modules/VERSION/%s, and ostree boots a system with just one", len(found), file)
		}
	}
	if missing := lackingToMount(); len(missing) > 0 {
		return "", fmt.Errorf("lacking %s", strings.Join(missing, ", "))
	}
	if _, err := os.Lstat(filepath.Join(tree, "usr/etc")); errors.Is(err, fs.ErrNotExist) {
		if tree, err = withDefaults(ctx, tree, filepath.Join(dir, "tree")); err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(tree)) }()
	}
	repo := "--repo=" + filepath.Join(dir, "repo")
	if _, err := run(ctx, "ostree", "init", repo, "--mode=bare"); err != nil {
		return "", err
	}
	out, err := run(ctx, "ostree", "commit", repo, "--branch=os/a", "--disable-fsync", "--tree=dir="+tree)
	return strings.TrimSpace(string(out)), err
}

// withDefaults copies a tree and moves its /etc to /usr/etc, where a commit has the defaults. It
// returns the path of the copy.
func withDefaults(ctx context.Context, tree, to string) (string, error) {
	if _, err := run(ctx, "cp", "-a", "--reflink=auto", tree, to); err != nil {
		return "", err
	}
	return to, os.Rename(filepath.Join(to, "etc"), filepath.Join(to, "usr/etc"))
}
