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
)

// Builder builds guests and keeps what it built.
type Builder struct {
	Cache string    // directory; "": machine-pivot/vm below the user's cache directory
	Log   io.Writer // what is being built and how long it took; may be nil
}

// GuestSpec says what a guest is.
type GuestSpec struct {
	// Suite and SuiteB are the Debian releases of A and of B, by code name.
	// "": Bookworm, and the same as A's.
	Suite, SuiteB string
	SELinux       SELinux
	// PolicyApart lets B's commit have A's SELinux policy: its own is what a container
	// build changes on top of it, Guest.Policies.
	PolicyApart bool
	// Overlay is in both versions; below /etc its files become the defaults in
	// /usr/etc. Its dracut modules become part of the initramfs.
	Overlay []TreeFile
	// OverlayB is in B only, on top of that, and in the tree that B's initramfs is made of.
	OverlayB []TreeFile
}

func (s GuestSpec) suiteA() string { return cmp.Or(s.Suite, Bookworm) }

// Debian releases that guests can be made of.
const (
	Bookworm = "bookworm" // Debian 12: kernel 6.1, systemd 252, libostree 2022.7, dracut 059
	Trixie   = "trixie"   // Debian 13: kernel 6.12, systemd 257, libostree 2025.2, dracut 106
	Forky    = "forky"    // Debian testing, which moves: libostree 2026.4, the first release here that has composefs
)

// Guest is an operating system in two versions. B differs from A in its
// version, in the file /usr/share/os-version-b and in the initramfs, and in all
// else if it is made of another Debian release.
type Guest struct {
	CommitA, CommitB string
	ArchiveRepo      string // an archive-mode repository that holds B only, under ArchiveRef
	// Policies are A's SELinux policy and B's, if B's commit has A's.
	Policies     Policies
	repoA, repoB string // bare
	selinux      bool   // A runs with it
}

// BareRepo is a bare repository that holds B.
func (g *Guest) BareRepo() string { return g.repoB }

// ArchiveRef is the name of B in a guest's archive repository.
const ArchiveRef = "os/b"

// How many entries the cache keeps of each kind, the present ones among them.
const (
	keepRootfs    = 1 // of each release
	keepBases     = 6
	keepInitramfs = 4
	keepVersions  = 8
)

// Guest builds what is not cached. Other processes that build wait.
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

// Initramfs is the initramfs that A has, a cpio archive that is not compressed.
// It builds what that needs.
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

// locked calls f with the cache, while no other process builds in it.
func (b *Builder) locked(ctx context.Context, f func(cache) error) (err error) {
	c := cache{dir: b.Cache, log: b.Log}
	if c.log == nil {
		c.log = io.Discard
	}
	if c.dir == "" {
		if c.dir, err = defaultCache(); err != nil {
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

// buildVersion builds a version of a guest on a Debian release, and removes what
// the cache has no more room for.
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
	made, err := base.version(ctx, v, overlay, policy)
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

// pruneVersions removes what is old of a base's versions, with their commits
// from its repository, and of their initramfs.
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
		if _, err := run(ctx, "ostree", "refs", repo, "--delete", strings.TrimSuffix(guest, partSuffix)); err != nil {
			return err
		}
	}
	_, err = run(ctx, "ostree", "prune", repo, "--refs-only")
	return err
}
