// Package buildcache keeps what takes minutes to build for tests, such as guests, from one run to the
// next, below machine-pivot in the user's cache directory.
package buildcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Cache is a directory of build results. The name of each entry contains a hash of its inputs.
type Cache struct {
	Dir string
	Log io.Writer // receives what is being built and how long it took
}

// Dir returns the directory of the named cache. Nothing exists there before the first build.
func Dir(name string) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find a place for the cache %s: %w", name, err)
	}
	return filepath.Join(dir, "machine-pivot", name), nil
}

// Lock waits for the cache's lock, which keeps other processes from building in the same cache.
func (c Cache) Lock(ctx context.Context) (unlock func() error, err error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot lock a cache: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(c.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot lock a cache: %w", err)
	}
	for logged := false; ; logged = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("cannot lock a cache: %w", err), f.Close())
		}
		if !logged {
			fmt.Fprintf(c.Log, "waiting for another build in %s\n", c.Dir)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("cannot lock a cache: %w", ctx.Err()), f.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Entry returns the directory name in the cache and builds it if it does not exist. A failed or
// interrupted build never leaves a partial entry of that name.
func (c Cache) Entry(name, what string, build func(dir string) error) (string, error) {
	dir := filepath.Join(c.Dir, name)
	now := time.Now()
	// Prune judges by the time of the last use.
	if err := os.Chtimes(dir, now, now); err == nil {
		return dir, nil
	}
	fmt.Fprintf(c.Log, "building %s\n", what)
	if err := buildInto(dir, build); err != nil {
		return "", fmt.Errorf("cannot build %s: %w", what, err)
	}
	fmt.Fprintf(c.Log, "built %s in %.1f s\n", what, time.Since(now).Seconds())
	return dir, nil
}

// PartSuffix marks an entry with a build that is in progress or was interrupted.
const PartSuffix = ".part"

func buildInto(dir string, build func(dir string) error) error {
	part := dir + PartSuffix
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	if err := os.Mkdir(part, 0o755); err != nil {
		return err
	}
	if err := build(part); err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	return os.Rename(part, dir)
}

// Prune removes the entries with prefix in their names, except for the keep most recently used ones. It returns the
// names of the removed entries.
func (c Cache) Prune(prefix string, keep int) (removed []string, err error) {
	dirs, err := filepath.Glob(filepath.Join(c.Dir, prefix+"*"))
	if err != nil {
		return nil, err
	}
	used := map[string]time.Time{}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil {
			used[dir] = info.ModTime()
		}
	}
	slices.SortFunc(dirs, func(x, y string) int { return used[y].Compare(used[x]) })
	for _, dir := range dirs[min(keep, len(dirs)):] {
		if err := os.RemoveAll(dir); err != nil {
			return removed, fmt.Errorf("cannot remove an old entry: %w", err)
		}
		removed = append(removed, filepath.Base(dir))
	}
	return removed, nil
}
