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

// cache is a directory of what was built, each entry named by a hash of what it
// is made from.
type cache struct {
	dir string
	log io.Writer
}

// defaultCache is where guests are kept if the caller does not say.
func defaultCache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find a place for guests: %w", err)
	}
	return filepath.Join(dir, "machine-pivot", "vm"), nil
}

// lock keeps other processes from building in the same cache.
func (c cache) lock(ctx context.Context) (unlock func() error, err error) {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot lock the cache of guests: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(c.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the cache of guests: %w", err)
	}
	for told := false; ; told = true {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("cannot lock the cache of guests: %w", err), f.Close())
		}
		if !told {
			fmt.Fprintf(c.log, "waiting for another build in %s\n", c.dir)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("cannot lock the cache of guests: %w", ctx.Err()), f.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// entry is the directory name in the cache, built if it is not there; it then is
// there whole or not at all.
func (c cache) entry(name, what string, build func(dir string) error) (string, error) {
	dir := filepath.Join(c.dir, name)
	now := time.Now()
	// The time of the last use decides what is pruned.
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

// partSuffix marks an entry that is being built, or whose build was killed.
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

// prune removes the entries whose names begin with prefix, but for the keep
// that were used last. It returns the names of the removed ones.
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
