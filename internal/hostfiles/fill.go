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

// fill writes the files into the mounted overlay. Removals come first, since other entries may
// replace what is removed; then directories, since other entries may be in them.
func (o Overlay) fill() error {
	root, err := os.OpenRoot(o.Dir) // symbolic links cannot escape from it
	if err != nil {
		return fmt.Errorf("cannot overlay %s: %w", o.Dir, err)
	}
	defer root.Close()
	for _, f := range slices.SortedStableFunc(slices.Values(o.Files), byFillOrder) {
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
	// Create a new inode: the existing entry may be a symbolic link, or a hard link to a shared file.
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
	return setOwnership(file, f.Entry)
}

// putDirectory creates a directory, or sets the mode and owner of an existing one.
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
	return setOwnership(dir, e)
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

// setOwnership sets the owner and then the mode of an open file. The order matters, because
// chown clears the set-ID bits.
func setOwnership(file *os.File, e Entry) error {
	return errors.Join(file.Chown(e.UID, e.GID), unix.Fchmod(int(file.Fd()), uint32(e.Mode)))
}

// remove removes a file or an empty directory. It is a no-op if there is none.
func remove(root *os.Root, rel string) error {
	err := root.Remove(rel)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// restore copies what the image has at a path, or removes the path if the image has nothing
// there. libostree then considers it unmodified, and its merge uses what the next image has.
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
	if info, err := os.Lstat(to); err == nil && info.IsDir() && shipped.IsDir() { // keep its contents
		return copyDirAttributes(image, to)
	}
	if err := remove(root, rel); err != nil {
		return err
	}
	return copyTree(image, to)
}
