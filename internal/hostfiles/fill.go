package hostfiles

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// fill makes the mounted overlay show what it is for. What the image has comes first,
// since entries may stand where something is removed; then directories, since other
// entries may be in them.
func (o Overlay) fill() error {
	root, err := os.OpenRoot(o.Dir) // no link in it leads out
	if err != nil {
		return fmt.Errorf("cannot overlay %s: %w", o.Dir, err)
	}
	defer root.Close()
	for _, f := range slices.SortedStableFunc(slices.Values(o.Files), inOrder) {
		rel, ok := strings.CutPrefix(f.Path, o.At+"/")
		if !ok {
			return fmt.Errorf("cannot put %s: not below %s", f.Path, o.At)
		}
		if err := o.put(root, rel, f); err != nil {
			return fmt.Errorf("cannot put %s: %w", f.Path, err)
		}
	}
	return nil
}

// inOrder compares files by when they are put: what is removed from the bottom up,
// directories from the top down.
func inOrder(a, b File) int {
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
	switch f.Kind {
	case KindDefault:
		return o.restore(root, rel)
	case KindAbsent:
		return remove(root, rel)
	}
	if err := root.MkdirAll(filepath.Dir(rel), 0o755); err != nil {
		return err
	}
	switch f.Kind {
	case KindFile:
		return putFile(root, rel, f)
	case KindDirectory:
		return putDirectory(root, rel, f.Entry)
	case KindLink:
		return putLink(root, rel, f.Entry)
	}
	return fmt.Errorf("no entry can be of kind %q", f.Kind)
}

func putFile(root *os.Root, rel string, f File) error {
	// A new inode: what stands there may be a link, or a hard link to something shared.
	if err := remove(root, rel); err != nil {
		return err
	}
	file, err := root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(f.Content); err != nil {
		return err
	}
	return own(file, f.Entry)
}

// putDirectory makes a directory, or gives the one that stands there its mode and owner.
func putDirectory(root *os.Root, rel string, e Entry) error {
	if info, err := root.Lstat(rel); err != nil || !info.IsDir() {
		if err := remove(root, rel); err != nil {
			return err
		}
		if err := root.Mkdir(rel, 0o700); err != nil {
			return err
		}
	}
	dir, err := root.Open(rel)
	if err != nil {
		return err
	}
	defer dir.Close()
	return own(dir, e)
}

func putLink(root *os.Root, rel string, e Entry) error {
	if err := remove(root, rel); err != nil {
		return err
	}
	if err := root.Symlink(e.Target, rel); err != nil {
		return err
	}
	return root.Lchown(rel, e.UID, e.GID)
}

// own gives an open file the entry's owner and then its mode: chown clears the set-id bits.
func own(file *os.File, e Entry) error {
	return errors.Join(file.Chown(e.UID, e.GID), unix.Fchmod(int(file.Fd()), uint32(e.Mode)))
}

// remove removes a file, or a directory that is empty, if it is there.
func remove(root *os.Root, rel string) error {
	err := root.Remove(rel)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// restore makes a path what the image has there. libostree takes that for unmodified,
// and has what the next image has.
func (o Overlay) restore(root *os.Root, rel string) error {
	image := filepath.Join(o.Image, rel)
	shipped, err := os.Lstat(image)
	if o.Image == "" || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return remove(root, rel)
	}
	if err != nil {
		return err
	}
	if err := root.MkdirAll(filepath.Dir(rel), 0o755); err != nil {
		return err
	}
	dir, err := root.Open(filepath.Dir(rel))
	if err != nil {
		return err
	}
	defer dir.Close()
	to := filepath.Join(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), filepath.Base(rel))
	if info, err := os.Lstat(to); err == nil && info.IsDir() && shipped.IsDir() { // what is in it stays
		return copyOwn(image, to)
	}
	if err := remove(root, rel); err != nil {
		return err
	}
	return copyTree(image, to)
}
