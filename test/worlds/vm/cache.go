package vm

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

// cache is a directory of build results. The name of each entry contains a hash of its inputs.
type cache struct {
	dir string
	log io.Writer
}

// defaultCache returns the cache directory to use if the caller sets none.
func defaultCache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find a place for guests: %w", err)
	}
	return filepath.Join(dir, "machine-pivot", "vm"), nil
}

// lock waits for the cache's lock, which keeps other processes from building in the same cache.
func (c cache) lock(ctx context.Context) (unlock func() error, err error) {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot lock the cache of guests: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the cache of guests: %w", err)
	}
	for logged := false; ; logged = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("cannot lock the cache of guests: %w", err), f.Close())
		}
		if !logged {
			fmt.Fprintf(c.log, "waiting for another build in %s\n", c.dir)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("cannot lock the cache of guests: %w", ctx.Err()), f.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// entry returns the directory name in the cache and builds it if it does not exist. A failed or
// interrupted build never leaves a partial entry of that name.
func (c cache) entry(name, what string, build func(dir string) error) (string, error) {
	dir := filepath.Join(c.dir, name)
	now := time.Now()
	// prune goes by the time of the last use.
	if err := os.Chtimes(dir, now, now); err == nil {
		return dir, nil
	}
	fmt.Fprintf(c.log, "building %s\n", what)
	if err := buildInto(dir, build); err != nil {
		return "", fmt.Errorf("cannot build %s: %w", what, err)
	}
	fmt.Fprintf(c.log, "built %s in %.1f s\n", what, time.Since(now).Seconds())
	return dir, nil
}

// partSuffix marks an entry whose build is in progress or was interrupted.
const partSuffix = ".part"

func buildInto(dir string, build func(dir string) error) error {
	part := dir + partSuffix
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

// prune removes the entries whose names begin with prefix, except for the keep most recently used
// ones. It returns the names of the removed entries.
func (c cache) prune(prefix string, keep int) (removed []string, err error) {
	dirs, err := filepath.Glob(filepath.Join(c.dir, prefix+"*"))
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
			return removed, fmt.Errorf("cannot remove an old guest: %w", err)
		}
		removed = append(removed, filepath.Base(dir))
	}
	return removed, nil
}
