package vm

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/test/tools/buildcache"
)

// Builder builds guests and caches them.
type Builder struct {
	Cache string    // directory; "": machine-pivot/vm below the user's cache directory
	Log   io.Writer // receives what is being built and how long it took; may be nil
}

// GuestSpec describes a guest.
type GuestSpec struct {
	// Suite and SuiteB are the Debian releases of A and of B, by code name.
	// An empty Suite means Bookworm, an empty SuiteB means A's release.
	Suite, SuiteB string
	SELinux       SELinux
	// PolicyApart leaves A's SELinux policy in B's commit. B's own policy is in
	// Guest.Policies, so that a derived container layer can apply it.
	PolicyApart bool
	// Overlay is added to both versions. Its files below /etc become the defaults in
	// /usr/etc, and its dracut modules become part of the initramfs.
	Overlay []TreeFile
	// OverlayB is added to B only, on top of Overlay, and to the tree that B's initramfs is
	// made from.
	OverlayB []TreeFile
	// SameKernel gives B the initramfs of A, the same file: B must be of A's release, and what OverlayB has for an
	// initramfs is left out. Both then have one boot directory.
	SameKernel bool
}

func (s GuestSpec) suiteA() string { return cmp.Or(s.Suite, Bookworm) }

// Debian releases that guests can be made of.
const (
	Bookworm = "bookworm" // Debian 12: kernel 6.1, systemd 252, libostree 2022.7, dracut 059
	Trixie   = "trixie"   // Debian 13: kernel 6.12, systemd 257, libostree 2025.2, dracut 106
	Forky    = "forky"    // Debian testing, which changes: libostree 2026.4, the first release here with composefs
)

// Guest is an operating system in two versions, A and B. B has another version number, the file
// /usr/share/os-version-b and another initramfs. With another Debian release, everything
// differs.
type Guest struct {
	CommitA, CommitB string
	ArchiveRepo      string // an archive-mode repository that holds B only, under ArchiveRef
	// Policies are A's and B's SELinux policies; set only with GuestSpec.PolicyApart.
	Policies     Policies
	repoA, repoB string // bare repositories
	selinux      bool   // A runs with SELinux
}

// BareRepo returns the path of a bare repository that holds B.
func (g *Guest) BareRepo() string { return g.repoB }

// ArchiveRef is the ref of B in a guest's archive repository.
const ArchiveRef = "os/b"

// How many entries of each kind the cache keeps, including those in use.
const (
	keepRootfs    = 1 // for each release
	keepBases     = 6
	keepInitramfs = 4
	keepVersions  = 8
)

// Guest returns the guest that spec describes and builds what is not cached. It locks the cache,
// so that other processes wait.
func (b *Builder) Guest(ctx context.Context, spec GuestSpec) (*Guest, error) {
	g := Guest{selinux: spec.SELinux != NoSELinux}
	err := b.locked(ctx, func(c cache) error {
		made, err := c.buildVersion(ctx, versionA(), spec.suiteA(), spec)
		if err != nil {
			return err
		}
		g.CommitA, g.repoA = made.commit, made.repo
		made, err = c.buildVersion(ctx, versionB(), cmp.Or(spec.SuiteB, spec.suiteA()), spec)
		g.CommitB, g.repoB, g.ArchiveRepo = made.commit, made.repo, made.archive
		if spec.PolicyApart {
			g.Policies = made.policies
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// Initramfs returns A's initramfs, an uncompressed cpio archive, and builds what is not cached.
func (b *Builder) Initramfs(ctx context.Context, spec GuestSpec) (image []byte, err error) {
	err = b.locked(ctx, func(c cache) error {
		base, err := c.base(ctx, spec.suiteA(), spec.SELinux.variant())
		if err != nil {
			return err
		}
		file, err := base.initramfs(ctx, spec.Overlay)
		if err != nil {
			return err
		}
		image, err = os.ReadFile(file)
		return err
	})
	return image, err
}

// locked calls f with the cache while it holds the cache's lock.
func (b *Builder) locked(ctx context.Context, f func(cache) error) (err error) {
	c := cache{dir: b.Cache, log: b.Log}
	if c.log == nil {
		c.log = io.Discard
	}
	if c.dir == "" {
		if c.dir, err = buildcache.Dir("vm"); err != nil {
			return err
		}
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	return f(c)
}

// buildVersion builds a version of a guest on a Debian release and then prunes the cache.
func (c cache) buildVersion(ctx context.Context, v version, suite string, spec GuestSpec) (build, error) {
	base, err := c.base(ctx, suite, spec.SELinux.variant())
	if err != nil {
		return build{}, err
	}
	policy, overlay := spec.SELinux.policy(v), spec.Overlay
	if spec.PolicyApart {
		policy = ""
	}
	if v.successor {
		overlay = slices.Concat(overlay, spec.OverlayB)
	}
	early := overlay
	if spec.SameKernel {
		early = spec.Overlay
	}
	v.sameKernel = spec.SameKernel
	initramfs, err := base.initramfs(ctx, early)
	if err != nil {
		return build{}, err
	}
	made, err := base.version(ctx, v, initramfs, overlay, policy)
	if err != nil {
		return build{}, err
	}
	made.policies = spec.SELinux.policies(base)
	return made, errors.Join(c.pruneBases(suite), base.pruneVersions(ctx))
}

func (c cache) pruneBases(suite string) error {
	if _, err := c.prune("rootfs-"+suite+"-", keepRootfs); err != nil {
		return err
	}
	_, err := c.prune("base-", keepBases)
	return err
}

// pruneVersions removes a base's least recently used initramfs images and versions, with the
// versions' commits from the base's repository.
func (c cache) pruneVersions(ctx context.Context) error {
	if _, err := c.prune("initramfs-", keepInitramfs); err != nil {
		return err
	}
	removed, err := c.prune("guest-", keepVersions)
	if err != nil || len(removed) == 0 {
		return err
	}
	repo := "--repo=" + filepath.Join(c.dir, "repo")
	for _, guest := range removed {
		if _, err := run(ctx, "ostree", "refs", repo, "--delete", strings.TrimSuffix(guest, buildcache.PartSuffix)); err != nil {
			return err
		}
	}
	_, err = run(ctx, "ostree", "prune", repo, "--refs-only")
	return err
}
