package vm

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
)

// Builder builds guests and keeps what it built.
type Builder struct {
	Cache string    // directory; "": machine-pivot/vm below the user's cache directory
	Log   io.Writer // what is being built and how long it took; may be nil
}

// GuestSpec is what a guest has beside the base system.
type GuestSpec struct {
	Overlay []TreeFile // in both versions; below /etc they become the defaults in /usr/etc
}

// Guest is an operating system in two versions. B differs from A in its
// version, in the file /usr/share/os-version-b and in the initramfs.
type Guest struct {
	CommitA, CommitB string
	ArchiveRepo      string // an archive-mode repository that holds B only, under ArchiveRef
	repo             string // bare; holds both
}

// ArchiveRef is the name of B in a guest's archive repository.
const ArchiveRef = "os/b"

// How many entries the cache keeps of each kind, the present ones among them.
const (
	keepRootfs = 1
	keepBases  = 2
	keepGuests = 4
)

// Guest builds what is not cached. Other processes that build wait.
func (b *Builder) Guest(ctx context.Context, spec GuestSpec) (_ *Guest, err error) {
	c := cache{dir: b.Cache, log: b.Log}
	if c.log == nil {
		c.log = io.Discard
	}
	if c.dir == "" {
		if c.dir, err = defaultCache(); err != nil {
			return nil, err
		}
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	base, err := c.base(ctx)
	if err != nil {
		return nil, err
	}
	// Guests live inside the base that they are cut from, and go with it.
	inner := cache{dir: base, log: c.log}
	g, err := inner.guest(ctx, spec)
	if err != nil {
		return nil, err
	}
	return g, errors.Join(c.pruneBases(), inner.pruneGuests(ctx))
}

func (c cache) pruneBases() error {
	if _, err := c.prune("rootfs-", keepRootfs); err != nil {
		return err
	}
	_, err := c.prune("base-", keepBases)
	return err
}

// pruneGuests removes old guests, with their commits from the base's repository.
func (c cache) pruneGuests(ctx context.Context) error {
	removed, err := c.prune("guest-", keepGuests)
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
