package hostfiles

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// fill writes the files into the mounted overlay. Removals come first, since other entries may
// replace what is removed; then directories, since other entries may be in them.
func (o Overlay) fill() error {
	root, err := os.OpenRoot(o.Dir) // symbolic links cannot escape from it
	if err != nil {
		return fmt.Errorf("cannot overlay %s: %w", o.Dir, err)
	}
	defer root.Close()
	files := slices.Clone(o.Files)
	sort.SliceStable(files, func(i, j int) bool { return byFillOrder(files[i], files[j]) < 0 })
	for _, f := range files {
		rel, ok := strings.CutPrefix(f.Path, o.At+"/")
		if !ok {
			return fmt.Errorf("cannot put %s: not below %s", f.Path, o.At)
		}
		if err := o.put(root, rel, f); err != nil {
			return fmt.Errorf("cannot put %s: %w", f.Path, err)
		}
	}
	for _, dir := range o.Carried {
		if err := o.mark(root, dir); err != nil {
			return fmt.Errorf("cannot mark %s: %w", dir, err)
		}
	}
	return nil
}

// mark makes a FIFO in a directory. libostree's merge gives a directory of the next image the shown one's owner and
// mode before it copies what only the shown one has. Then it leaves out a FIFO: copy_modified_config_file in its
// ostree-sysroot-deploy.c, since 2021.5.
func (o Overlay) mark(root *os.Root, dir string) error {
	at, err := o.dirOf(root, strings.TrimPrefix(dir, o.At+"/")+"/"+temporary, (*Dir).openOrMake)
	if err != nil {
		return err
	}
	defer at.Close()
	return unix.Mknodat(int(at.file.Fd()), TemporaryName(), unix.S_IFIFO|0o600, 0)
}

// byFillOrder compares files by the order in which fill writes them. Removals are ordered from
// the bottom up, directories from the top down.
func byFillOrder(a, b File) int {
	turn := map[Kind]int{KindDefault: 0, KindAbsent: 0, KindDirectory: 1, KindFile: 2, KindLink: 2, KindPassword: 3}
	switch order := cmp.Compare(turn[a.Kind], turn[b.Kind]); {
	case order != 0:
		return order
	case a.Removes():
		return strings.Compare(b.Path, a.Path)
	case a.Kind == KindDirectory:
		return strings.Compare(a.Path, b.Path)
	}
	return 0
}

func (o Overlay) put(root *os.Root, rel string, f File) error {
	if f.Named() {
		return fmt.Errorf("its owner has no number: %s", f.Entry)
	}
	if user := passwordOf(f.Path); user != "" {
		if f.Kind == KindDefault {
			return lockPassword(root, filepath.Dir(rel), user)
		}
		return putPassword(root, filepath.Dir(rel), user, string(f.Content))
	}
	switch {
	case f.Removes():
		return o.takeAway(root, rel, f.Kind == KindDefault)
	case f.Kind != KindFile && f.Kind != KindDirectory && f.Kind != KindLink:
		return fmt.Errorf("no entry can be of kind %q", f.Kind)
	}
	dir, err := o.dirOf(root, rel, (*Dir).openOrMake)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.put(filepath.Base(rel), f)
}

// dirOf opens the directory of an entry with open, which opens a directory in another one.
func (o Overlay) dirOf(root *os.Root, rel string, open func(at *Dir, name string) (*Dir, error)) (*Dir, error) {
	at, err := openBelow(unix.AT_FDCWD, o.Dir, 0)
	if err != nil {
		return nil, err
	}
	walked := "."
	for part := range strings.SplitSeq(filepath.Dir(rel), "/") {
		walked = filepath.Join(walked, part)
		if !at.shared && at.isLink(part) {
			if _, err := root.Stat(walked); err != nil { // it leads outside of the overlay, or nowhere
				return nil, errors.Join(err, at.Close())
			}
		}
		next, err := open(at, part)
		if err = errors.Join(err, at.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", walked, err)
		}
		at = next
	}
	return at, nil
}

// openOrMake opens a directory in the directory, and makes it if it is missing. If users own the
// directory, a link or a file makes room for it.
func (d *Dir) openOrMake(name string) (*Dir, error) {
	next, err := d.open(name, FollowRoots)
	if d.shared && (errors.Is(err, ErrLink) || errors.Is(err, unix.ENOTDIR)) {
		err = errors.Join(d.takeAway(name), fs.ErrNotExist)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := unix.Mkdirat(int(d.file.Fd()), name, 0o755); err != nil {
			return nil, &fs.PathError{Op: "mkdir", Path: name, Err: err}
		}
		return d.open(name, FollowNone)
	}
	return next, err
}

// put makes an entry in the directory of an overlay.
func (d *Dir) put(base string, f File) error {
	if f.Kind == KindDirectory {
		return d.putDirectory(base, f)
	}
	// Create a new inode: the existing entry may be a symbolic link, or a hard link to a shared file.
	if err := d.takeAway(base); err != nil {
		return err
	}
	return OS{}.Make(d.At(base), f, "")
}

// putDirectory creates a directory, or sets the mode and owner of an existing one.
func (d *Dir) putDirectory(base string, f File) error {
	next, err := d.open(base, FollowNone)
	if err == nil {
		if err := next.Close(); err != nil {
			return err
		}
		return OS{}.Own(d.At(base), f.Entry)
	}
	if err := d.takeAway(base); err != nil {
		return err
	}
	return OS{}.Make(d.At(base), f, "")
}

// maxTakenAway is the number of entries of a user's directory that takeAway removes at most: the
// user may add to it meanwhile.
const maxTakenAway = 100_000

// takeAway removes a file or an empty directory from an overlay; in a directory that users own, also
// one with contents, which the running system keeps. It is a no-op if there is none.
func (d *Dir) takeAway(base string) error {
	err := unlink(d, base)
	if d.shared && errors.Is(err, unix.ENOTEMPTY) {
		left := maxTakenAway
		err = d.empty(base, &left)
	}
	return err
}

// empty removes a directory with all that is in it, which may be left entries.
func (d *Dir) empty(base string, left *int) error {
	dir, err := d.open(base, FollowNone)
	if err != nil {
		return err
	}
	defer dir.Close()
	err = dir.each(func(entry fs.DirEntry) error {
		if *left--; *left < 0 {
			return errTooMuch
		}
		err := unlink(dir, entry.Name())
		if errors.Is(err, unix.ENOTEMPTY) {
			err = dir.empty(entry.Name(), left)
		}
		return err
	})
	if err != nil {
		return err
	}
	return unlink(d, base)
}

// unlink removes a file or an empty directory. It is a no-op if there is none.
func unlink(d *Dir, base string) error {
	err := unix.Unlinkat(int(d.file.Fd()), base, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(int(d.file.Fd()), base, unix.AT_REMOVEDIR)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return &fs.PathError{Op: "remove", Path: base, Err: err}
}

// setOwnership sets the owner and then the mode of an open file. The order matters, because
// chown clears the set-ID bits.
func setOwnership(file *os.File, e Entry) error {
	return errors.Join(file.Chown(e.UID, e.GID), unix.Fchmod(int(file.Fd()), uint32(e.Mode)))
}

// takeAway removes what is at a path, or, if restore is set, replaces it by what the image has
// there. libostree then considers it unmodified, and its merge uses what the next image has.
func (o Overlay) takeAway(root *os.Root, rel string, restore bool) error {
	image := filepath.Join(o.Image, rel)
	shipped, err := os.Lstat(image)
	if !restore || o.Image == "" || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		dir, err := o.dirOf(root, rel, func(at *Dir, name string) (*Dir, error) { return at.open(name, FollowRoots) })
		if err != nil && Obstructed(err) {
			return nil // what should go is not there
		}
		if err != nil {
			return err
		}
		defer dir.Close()
		return dir.takeAway(filepath.Base(rel))
	}
	if err != nil {
		return err
	}
	dir, err := o.dirOf(root, rel, (*Dir).openOrMake)
	if err != nil {
		return err
	}
	defer dir.Close()
	to := dir.At(filepath.Base(rel))
	if info, err := os.Lstat(to); err == nil && info.IsDir() && shipped.IsDir() { // keep its contents
		return copyDirAttributes(image, to)
	}
	if err := dir.takeAway(filepath.Base(rel)); err != nil {
		return err
	}
	return copyTree(image, to)
}
