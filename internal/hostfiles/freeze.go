package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// libostree's merge fails for anything that is neither file, directory nor link, and for what is
// removed or replaced while it copies. So an overlay for it does not show the directories that
// users own as they change, but a copy of each, without FIFOs, sockets and devices. The copy is in
// the upper layer, in a directory that overlayfs does not merge with the lower one.

// The maximum of what is copied, in bytes and entries. It is in memory.
const (
	maxFrozenBytes   = 64 << 20
	maxFrozenEntries = 50_000
)

// opaque is the attribute of a directory of an upper layer that is not merged with the lower one.
const opaque = "trusted.overlay.opaque"

// freezer copies users' directories from the lower layer of an overlay to the upper one.
type freezer struct {
	lower, upper string
	copier
}

// freeze copies all directories below lower that anybody but root may write to upper. If they have
// too much, only what libostree's merge cannot copy is left out of them.
func freeze(lower, upper string) error {
	f := freezer{lower, upper, copier{maxFrozenBytes, maxFrozenEntries}}
	at, err := openBelow(unix.AT_FDCWD, lower, 0)
	if err != nil {
		return err
	}
	defer at.Close()
	if err := f.walk(at, ""); err != nil {
		return fmt.Errorf("cannot copy what users own in %s: %w", lower, err)
	}
	return nil
}

// walk freezes the users' directories in a directory; its path below lower is rel.
func (f *freezer) walk(at *Dir, rel string) error {
	return at.each(func(entry fs.DirEntry) error {
		name := filepath.Join(rel, entry.Name())
		switch {
		case entry.IsDir():
			return f.dir(at, name)
		case at.shared && entry.Type()&^fs.ModeSymlink != 0:
			return f.hide(name)
		}
		return nil
	})
}

// dir freezes the directory at rel if users own it, or those in it.
func (f *freezer) dir(at *Dir, rel string) error {
	next, err := at.open(filepath.Base(rel), FollowNone)
	if err != nil && at.shared && Obstructed(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer next.Close()
	if next.shared && !at.shared {
		err := f.copyDir(at, rel)
		if !errors.Is(err, errTooMuch) {
			return err
		}
	}
	return f.walk(next, rel)
}

// copyDir copies a directory of users to the upper layer; if it has too much, it copies nothing.
func (f *freezer) copyDir(at *Dir, rel string) error {
	if err := f.parents(rel); err != nil {
		return err
	}
	to := filepath.Join(f.upper, rel)
	err := f.copy(at, filepath.Base(rel), to)
	if err != nil {
		return errors.Join(err, os.RemoveAll(to))
	}
	return unix.Lsetxattr(to, opaque, []byte("y"), 0)
}

// hide makes a whiteout: overlayfs does not show the entry of the lower layer.
func (f *freezer) hide(rel string) error {
	err := f.parents(rel)
	if err == nil {
		err = unix.Mknod(filepath.Join(f.upper, rel), unix.S_IFCHR, 0)
	}
	if err != nil && Obstructed(err) { // the user has replaced what is above it
		return nil
	}
	return err
}

// parents makes the directories above an entry of the upper layer, which are merged with those of
// the lower layer and hide their attributes.
func (f *freezer) parents(rel string) error {
	dir := filepath.Dir(rel)
	if _, err := os.Lstat(filepath.Join(f.upper, dir)); dir == "." || err == nil {
		return nil
	}
	if err := f.parents(dir); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(f.upper, dir), 0o700); err != nil {
		return err
	}
	at, err := openBelow(unix.AT_FDCWD, filepath.Join(f.lower, dir), unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer at.Close()
	return copyDirAttributes(at.Path(), filepath.Join(f.upper, dir))
}
