package ostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/guard"
)

// In a repository that gives objects fs-verity, an import publishes a commit only when each regular object has that:
// its own before they are renamed, and those found there. The latter may come from a time or a program that did not
// enable it, and without it a system that requires fs-verity could not read them. Finish is the only way into the
// repository, so this rule is held here alone.

// sealers is how many objects are given fs-verity at once. The kernel writes and waits for the
// hashes of each file, so most of the time is spent waiting for the disk.
const sealers = 16

// seal gives all objects of a set that lack it fs-verity, if the repository wants that. Each import calls it before it
// publishes a commit, so that every object has fs-verity, whoever wrote the object and when.
func (im *Import) seal(ctx context.Context, objects map[ObjectName]bool) error {
	if !im.verity {
		return nil
	}
	names := make(chan ObjectName)
	sealed := make([][]ObjectName, sealers)
	group, ctx := guard.NewGroup(ctx)
	group.Start(func() error {
		defer close(names)
		for n := range objects {
			select {
			case names <- n:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for i := range sealers {
		group.Start(func() error {
			for n := range names {
				changed, err := im.sealOne(n)
				if err != nil {
					return fmt.Errorf("cannot give object %s fs-verity: %w", n, err)
				}
				if changed {
					sealed[i] = append(sealed[i], n)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	im.touch(slices.Concat(sealed...))
	return nil
}

// sealOne gives one object fs-verity and reports whether that changed it.
func (im *Import) sealOne(n ObjectName) (changed bool, err error) {
	staged := im.state(n) == isStaged
	path := im.objectPath(n)
	if has, err := HasVerity(path); err != nil || has {
		return false, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ELOOP) { // a symbolic link has no content
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	changed, err = im.enable(f)
	if err != nil || !changed {
		return false, err
	}
	// Staged objects are synced together, before they are renamed, unless each is to be synced.
	if im.repo.config.fsync && (!staged || im.repo.config.perObjectFsync) {
		return true, f.Sync()
	}
	return true, nil
}

// enable gives an open object fs-verity, if there is room for what the kernel stores for it.
func (im *Import) enable(f *os.File) (enabled bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	size := verityBytes(info.Size())
	if err := im.reserve(size); err != nil {
		return false, err
	}
	err = enableVerity(f)
	if err != nil {
		im.release(size)
	}
	if lacksSupport(err) && im.repo.config.verity == verityMaybe {
		return false, nil
	}
	return err == nil, err
}

// touch marks staged objects as changed since the last flush.
func (im *Import) touch(objects []ObjectName) {
	im.mu.Lock()
	defer im.mu.Unlock()
	for _, n := range objects {
		if o := im.objects[n]; o.state == isStaged {
			o.epoch = im.flusher.now
			im.objects[n] = o
		}
	}
}

// CheckVerity returns an error that names an object unless each regular file of a commit in the
// repository has fs-verity. Empty files need none: a composefs image does not refer to them.
func (r *Repo) CheckVerity(ctx context.Context, c Checksum) error {
	w := r.newWalk()
	if err := w.commit(ctx, c); err != nil {
		return err
	}
	for n := range w.seen {
		if n.Type != File {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.checkVerity(n); err != nil {
			return err
		}
	}
	return nil
}

func (r *Repo) checkVerity(n ObjectName) error {
	path := r.objectPath(n)
	has, err := HasVerity(path)
	if err != nil || has {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return corrupt(n, "it is missing")
	case err != nil:
		return err
	case info.Mode().IsRegular() && info.Size() > 0:
		return &UnsealedError{n}
	}
	return nil
}

// UnsealedError is the error for an object without fs-verity.
type UnsealedError struct{ Object ObjectName }

func (e *UnsealedError) Error() string { return "object " + e.Object.String() + " has no fs-verity" }
