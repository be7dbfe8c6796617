package layer

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"

	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
)

// NewTree returns the tree of a base commit.
func NewTree(objects Objects, base ostree.DirChecksums) (*Tree, error) {
	t := &Tree{objects: objects, base: base, baseNames: nameCounter{base: true}}
	t.root = &dir{saved: base, counter: &t.baseNames}
	setup, err := t.prepareRoot()
	if errors.Is(err, ostree.ErrPrepareRoot) {
		return t, nil // not an error yet: a layer may replace the file
	}
	t.nonUsr = setup.SeesRoot()
	return t, err
}

// NewPlainTree returns an empty tree, for an image with the whole OS in its layers.
func NewPlainTree(objects Objects) *Tree {
	return &Tree{objects: objects, root: implied(0, 0), nonUsr: true}
}

// From returns a layer that an earlier import has kept.
func From(tree OwnTree) *Layer { return &Layer{root: &dir{saved: tree.Root}, part: tree.Part} }

// kept reports whether the layer is from an earlier import.
func (l *Layer) kept() bool { return l.root.saved != (ostree.DirChecksums{}) }

// lookUp returns the file at a path in the tree, or nil. It does not follow symbolic links.
func (t *Tree) lookUp(at string) (*file, error) {
	d, err := t.lookUpDir(path.Dir(at))
	if err != nil || d == nil {
		return nil, err
	}
	return d.files[path.Base(at)], nil
}

// lookUpDir returns the directory at a path in the tree after loading it, or nil.
func (t *Tree) lookUpDir(at string) (*dir, error) {
	d := t.root
	for name := range strings.SplitSeq(at, "/") {
		if name == "." || name == "" {
			continue
		}
		if err := d.load(t.objects); err != nil {
			return nil, err
		}
		if d = d.dirs[name]; d == nil {
			return nil, nil
		}
	}
	return d, d.load(t.objects)
}

// maxConfig bounds the size of a file that is read into memory, in bytes. The largest are the
// patterns of SELinux policies, with less than 1 MiB.
const maxConfig = 16 << 20

// read returns the content of a regular file in the tree, or nil if there is none.
func (t *Tree) read(at string) ([]byte, error) {
	f, err := t.lookUp(at)
	if err != nil || f == nil {
		return nil, err
	}
	stat, err := t.objects.StatFile(f.object)
	if err != nil || isLink(stat.Mode) {
		return nil, err
	}
	if stat.Size > maxConfig {
		return nil, imagefault.TooLarge("/%s has more than %d bytes", at, maxConfig)
	}
	in, err := t.objects.OpenFile(f.object)
	if err != nil {
		return nil, fmt.Errorf("cannot read /%s: %w", at, err)
	}
	defer in.Close()
	data := bytes.NewBuffer(make([]byte, 0, stat.Size+bytes.MinRead))
	if _, err := data.ReadFrom(in); err != nil {
		return nil, fmt.Errorf("cannot read /%s: %w", at, err)
	}
	return data.Bytes(), nil
}

// prepareRoot reads the tree's prepare-root.conf.
func (t *Tree) prepareRoot() (ostree.PrepareRoot, error) {
	return ostree.ReadPrepareRoot(t.look)
}

// look returns the entry at a path in the tree. It does not follow symbolic links.
func (t *Tree) look(at string) (found ostree.Found, exists bool, err error) {
	parent, err := t.lookUpDir(path.Dir(at))
	if err != nil || parent == nil {
		return found, false, err
	}
	if parent.dirs[path.Base(at)] != nil {
		return ostree.Found{IsDir: true}, true, nil
	}
	f := parent.files[path.Base(at)]
	if f == nil {
		return found, false, nil
	}
	stat, err := t.objects.StatFile(f.object)
	switch {
	case err != nil:
	case isLink(stat.Mode):
		found.Target, err = t.objects.ReadLink(f.object)
	default:
		found.File, err = t.read(at)
	}
	return found, err == nil, err
}
