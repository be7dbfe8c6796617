package vm

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// versionsRecipe is this file: a change to how versions are made makes new ones.
//
//go:embed versions.go
var versionsRecipe []byte

// version is one of the two that a guest has.
type version struct {
	name, number string
	time         string // fixed, so that the same files make the same commit
	successor    bool   // it has the marker, an initramfs of its own, and an archive
	sameKernel   bool   // the successor has the initramfs of the first
}

func versionA() version { return version{name: "A", number: "A.1", time: "2026-01-01 00:00:00Z"} }
func versionB() version {
	return version{name: "B", number: "B.2", time: "2026-02-01 00:00:00Z", successor: true}
}

// build is a version that is built.
type build struct {
	commit, repo, archive string
	policies              Policies // of its base
}

// version makes a version with an initramfs on top of the base system in the cache c. policy is the
// SELinux policy that it has instead of the base's, or "".
func (c cache) version(ctx context.Context, v version, initramfs string, overlay []TreeFile, policy string) (build, error) {
	key, err := v.key(overlay, policy)
	if err != nil {
		return build{}, err
	}
	name := "guest-" + key
	dir, err := c.entry(name, "the guest's version "+v.name, func(dir string) error {
		files, err := v.files(ctx, c, initramfs, overlay)
		if err != nil {
			return err
		}
		from := "--selinux-policy-from-base"
		if policy != "" {
			root := filepath.Join(c.dir, policiesDir, policy)
			changed, err := TreeFiles(root)
			if err != nil {
				return err
			}
			files, from = append(files, defaults(changed)...), "--selinux-policy="+root
		}
		if err := c.commit(ctx, dir, name, v, files, from); err != nil || !v.successor {
			return err
		}
		return archive(ctx, c.dir, dir, name)
	})
	if err != nil {
		return build{}, err
	}
	commit, err := os.ReadFile(filepath.Join(dir, commitFile))
	if err != nil {
		return build{}, fmt.Errorf("cannot use a cached guest: %w", err)
	}
	return build{commit: strings.TrimSpace(string(commit)), repo: filepath.Join(c.dir, "repo"), archive: filepath.Join(dir, "archive")}, nil
}

// commitFile holds the commit in the entry of a version.
const commitFile = "commit"

// key changes with everything that the version is made from, but for the base.
func (v version) key(overlay []TreeFile, policy string) (string, error) {
	sum := sha256.New()
	sum.Write(versionsRecipe)
	fmt.Fprintln(sum, v.name, policy, v.sameKernel)
	if err := addAll(sum, overlay); err != nil {
		return "", fmt.Errorf("cannot build a guest: %w", err)
	}
	return shortSum(sum.Sum(nil)), nil
}

// files are all that the version has beside the base.
func (v version) files(ctx context.Context, base cache, initramfs string, overlay []TreeFile) ([]TreeFile, error) {
	release, err := recipe.ReadFile("guest/os-release")
	if err != nil {
		return nil, err
	}
	image, err := os.ReadFile(initramfs)
	if err != nil {
		return nil, err
	}
	modules, err := modulesDir(ctx, filepath.Join(base.dir, "repo"), baseRef)
	if err != nil {
		return nil, err
	}
	files := []TreeFile{{
		Path: "/usr/lib/os-release", Mode: 0o644, Content: []byte(strings.ReplaceAll(string(release), "@VERSION@", v.number)),
	}}
	if v.successor {
		files = append(files, TreeFile{Path: "/usr/share/os-version-b", Mode: 0o644, Content: []byte("b\n")},
			TreeFile{Path: NewTypePath + "/file", Mode: 0o644, Content: []byte("b\n")})
	}
	if v.successor && !v.sameKernel {
		// The kernel skips padding; B then needs a boot directory of its own.
		image = append(image, make([]byte, 4096)...)
	}
	files = append(files, TreeFile{Path: path.Join(modules, "initramfs.img"), Mode: 0o644, Content: image})
	return append(files, defaults(overlay)...), nil
}

// modulesDir is the directory of the only kernel of a commit in a repository.
func modulesDir(ctx context.Context, repo, commit string) (string, error) {
	list, err := run(ctx, "ostree", "ls", "--repo="+repo, "--nul-filenames-only", commit, "/usr/lib/modules")
	if err != nil {
		return "", err
	}
	// The directory itself comes first.
	if names := strings.Split(strings.TrimRight(string(list), "\x00"), "\x00"); len(names) == 2 {
		return names[1], nil
	}
	return "", fmt.Errorf("the system has not one kernel: %q", list)
}

// KernelRelease is the release of B's own kernel.
func (g *Guest) KernelRelease(ctx context.Context) (string, error) {
	dir, err := modulesDir(ctx, g.repoB, g.CommitB)
	return path.Base(dir), err
}

// defaults are files as a commit has them: ostree makes /etc from /usr/etc.
func defaults(files []TreeFile) []TreeFile {
	var moved []TreeFile
	for _, f := range files {
		if strings.HasPrefix(f.Path, "/etc/") {
			f.Path = "/usr" + f.Path
		}
		moved = append(moved, f)
	}
	return moved
}

// commit commits the base with files on top, and notes the commit in dir. The option policy says by which policy the
// files get labels.
func (c cache) commit(ctx context.Context, dir, ref string, v version, files []TreeFile, policy string) error {
	overlay := filepath.Join(dir, "overlay")
	if err := writeTree(overlay, files); err != nil {
		return err
	}
	commit, err := run(ctx, "ostree", "commit", "--repo="+filepath.Join(c.dir, "repo"), "--branch="+ref, "--subject="+v.number,
		"--add-metadata-string=version="+v.number, "--timestamp="+v.time,
		"--tree=ref="+baseRef, "--tree=dir="+overlay, "--consume", policy)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, commitFile), commit, 0o644); err != nil {
		return err
	}
	return os.RemoveAll(overlay)
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
