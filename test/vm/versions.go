package vm

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// versionsRecipe is this file: a change to how versions are made makes new ones.
//
//go:embed versions.go
var versionsRecipe []byte

// version is one of the two that a guest has.
type version struct{ name, number, time string }

// guest makes A and B on top of the base system in the cache c.
func (c cache) guest(ctx context.Context, spec GuestSpec) (*Guest, error) {
	key, err := spec.key()
	if err != nil {
		return nil, err
	}
	name, repo := "guest-"+key, filepath.Join(c.dir, "repo")
	dir, err := c.entry(name, "the guest's versions A and B", func(dir string) error {
		return commitVersions(ctx, c.dir, dir, name, spec)
	})
	if err != nil {
		return nil, err
	}
	g := &Guest{repo: repo, ArchiveRepo: filepath.Join(dir, "archive")}
	for v, commit := range map[string]*string{"A": &g.CommitA, "B": &g.CommitB} {
		data, err := os.ReadFile(filepath.Join(dir, v))
		if err != nil {
			return nil, fmt.Errorf("cannot use a cached guest: %w", err)
		}
		*commit = strings.TrimSpace(string(data))
	}
	return g, nil
}

// key changes with everything that A and B are made from, but for the base.
func (s GuestSpec) key() (string, error) {
	sum := sha256.New()
	sum.Write(versionsRecipe)
	for _, f := range s.Overlay {
		if err := f.addTo(sum); err != nil {
			return "", fmt.Errorf("cannot build a guest: %w", err)
		}
	}
	return shortSum(sum.Sum(nil)), nil
}

// commitVersions commits A and B to the base's repository under the guest's
// name, notes both commits in dir and makes the archive there.
func commitVersions(ctx context.Context, base, dir, guest string, spec GuestSpec) error {
	repo := filepath.Join(base, "repo")
	initramfs, err := successorInitramfs(ctx, repo)
	if err != nil {
		return err
	}
	// Their times are fixed so that the same files make the same commits.
	a, b := version{"A", "A.1", "2026-01-01 00:00:00Z"}, version{"B", "B.2", "2026-02-01 00:00:00Z"}
	marker := TreeFile{Path: "/usr/share/os-version-b", Mode: 0o644, Content: []byte("b\n")}
	if err := commitVersion(ctx, repo, dir, guest, a, spec.Overlay); err != nil {
		return err
	}
	if err := commitVersion(ctx, repo, dir, guest, b, append([]TreeFile{marker, initramfs}, spec.Overlay...)); err != nil {
		return err
	}
	return archive(ctx, base, dir, guest+"/"+b.name)
}

// commitVersion commits the base with files on top.
func commitVersion(ctx context.Context, repo, dir, guest string, v version, files []TreeFile) error {
	release, err := recipe.ReadFile("guest/os-release")
	if err != nil {
		return err
	}
	release = []byte(strings.ReplaceAll(string(release), "@VERSION@", v.number))
	tree := []TreeFile{{Path: "/usr/lib/os-release", Mode: 0o644, Content: release}}
	for _, f := range files {
		if strings.HasPrefix(f.Path, "/etc/") {
			f.Path = "/usr" + f.Path
		}
		tree = append(tree, f)
	}
	overlay := filepath.Join(dir, "overlay-"+v.name)
	if err := writeTree(overlay, tree); err != nil {
		return err
	}
	commit, err := run(ctx, "ostree", "commit", "--repo="+repo, "--branch="+guest+"/"+v.name, "--subject="+v.number,
		"--add-metadata-string=version="+v.number, "--timestamp="+v.time,
		"--tree=ref="+baseRef, "--tree=dir="+overlay, "--consume")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, v.name), commit, 0o644); err != nil {
		return err
	}
	return os.RemoveAll(overlay)
}

// successorInitramfs is the base's initramfs with padding, which the kernel
// skips: B then needs a boot directory of its own.
func successorInitramfs(ctx context.Context, repo string) (TreeFile, error) {
	list, err := run(ctx, "ostree", "ls", "--repo="+repo, "-R", "--nul-filenames-only", baseRef, "/usr/lib/modules")
	if err != nil {
		return TreeFile{}, err
	}
	for path := range strings.SplitSeq(string(list), "\x00") {
		if filepath.Base(path) == "initramfs.img" {
			content, err := run(ctx, "ostree", "cat", "--repo="+repo, baseRef, path)
			return TreeFile{Path: path, Mode: 0o644, Content: append(content, make([]byte, 4096)...)}, err
		}
	}
	return TreeFile{}, fmt.Errorf("the base system has no initramfs")
}

// archive makes an archive-mode repository with the commit of ref and no other.
// It starts from links to the base's archive, where most files are compressed already.
func archive(ctx context.Context, base, dir, ref string) error {
	repo := filepath.Join(dir, "archive")
	for _, argv := range [][]string{
		{"cp", "-al", filepath.Join(base, "archive"), repo},
		{"ostree", "pull-local", "--repo=" + repo, filepath.Join(base, "repo"), ref},
		{"ostree", "refs", "--repo=" + repo, "--create=" + ArchiveRef, ref},
		{"ostree", "refs", "--repo=" + repo, "--delete", baseRef},
		{"ostree", "refs", "--repo=" + repo, "--delete", ref},
		{"ostree", "prune", "--repo=" + repo, "--refs-only"},
	} {
		if _, err := run(ctx, argv...); err != nil {
			return err
		}
	}
	return nil
}
