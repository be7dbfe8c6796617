package layer

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
)

// Tree is the tree into which layers are merged, in the order of the image.
type Tree struct {
	objects Objects
	root    *dir
	base    ostree.DirChecksums // zero: none
	nonUsr  bool                // the system mounts the commit's whole root, not only /usr and /etc
	layers  []*Layer
	names   nameCounter // of the layers
	notes   notes

	baseNames nameCounter
	baseFiles map[ostree.Checksum]bool // the base's file objects; nil until they are needed
}

// onto is a tree with the number of the layer that is being merged into it.
type onto struct {
	*Tree
	number int // of the layer, from 1
}

// Add merges the next layer into the tree. The layer must be complete.
func (t *Tree) Add(l *Layer) error {
	t.layers = append(t.layers, l)
	if err := t.names.count(l.memory); err != nil {
		return err
	}
	l.root.counter = &t.names // for a layer that an earlier import has kept, with names that are not loaded yet
	o := onto{t, len(t.layers)}
	if err := o.add(l); err != nil {
		return fmt.Errorf("derived layer %d: %w", o.number, err)
	}
	return nil
}

func (o onto) add(l *Layer) error {
	if f := l.foreign; f.number > 0 {
		o.notes.add("%d extended attribute(s) of other systems, as %.40q of %.100q in derived layer %d, are left out", f.number, f.name, f.first, o.number)
	}
	if err := o.dropForeign(l); err != nil {
		return err
	}
	todo := make(map[*file]link, len(l.links))
	for _, k := range l.links {
		todo[k.to] = k
	}
	for _, k := range l.links {
		if err := o.resolve(k, todo); err != nil {
			return err
		}
	}
	l.links, l.hidden = nil, nil
	return o.merge(l.root, o.root, "")
}

// dropForeign removes the top-level directories and files of a layer that would not be visible
// in the system. The layer's own tree loses them, too: other programs filter a layer when they
// import it, and merge what its ref has.
func (o onto) dropForeign(l *Layer) error {
	if o.nonUsr {
		return nil
	}
	if err := l.root.load(o.objects); err != nil {
		return err
	}
	for _, name := range slices.Sorted(l.root.names()) {
		if !isOfOS(name) {
			o.notes.add("/%s of derived layer %d is left out: the root of this OS is not seen beside /usr and /etc", name, o.number)
			l.root.remove(name)
			l.written, l.part = nil, true
		}
	}
	return nil
}

// resolve replaces a hard link by its target (see AddLink), unless that is done. todo has the links of the layer that are
// not resolved yet, by their files.
func (o onto) resolve(k link, todo map[*file]link) (err error) {
	if _, open := todo[k.to]; !open {
		return nil
	}
	target := k.had
	if target == nil {
		if target, err = o.findLower(k.target); err != nil {
			return err
		}
	}
	if target == nil {
		target = k.later
	}
	if target == nil {
		return imagefault.Misbuilt("/%s is a hard link to /%s, which neither this layer nor a lower one has", k.path, k.target)
	}
	delete(todo, k.to)
	if next, open := todo[target]; open {
		if err := o.resolve(next, todo); err != nil {
			return err
		}
	}
	if target.object == (ostree.Checksum{}) {
		return imagefault.Misbuilt("the hard link /%s leads to itself", k.path)
	}
	k.to.resolveTo(target)
	return nil
}

func (o onto) findLower(at string) (*file, error) {
	if object, ok := strings.CutPrefix(at, baseObjects); ok {
		return o.baseObject(object)
	}
	return o.lookUp(at)
}

// baseObject returns the file of the base commit with the object at the given loose path, or nil.
func (o onto) baseObject(at string) (*file, error) {
	name, archive, err := ostree.ParseLoosePath(at)
	if err != nil || archive || name.Type != ostree.File || o.base == (ostree.DirChecksums{}) {
		return nil, nil // not a path of a file object
	}
	if o.baseFiles == nil {
		if o.baseFiles, err = o.objects.FilesBelow(o.base.Tree); err != nil {
			return nil, err
		}
	}
	if !o.baseFiles[name.Checksum] {
		return nil, nil
	}
	return &file{object: name.Checksum}, nil
}

// merge merges a layer's directory into the directory of the tree at the same path.
func (o onto) merge(from, into *dir, at string) error {
	if err := from.load(o.objects); err != nil {
		return err
	}
	if err := into.load(o.objects); err != nil {
		return err
	}
	if err := o.whiteouts(from, into, at); err != nil {
		return err
	}
	for name, f := range from.files {
		if !isWhiteout(name) || f.link {
			if into.dirs[name] != nil {
				o.noteReplaced(at, name, "directory", "file or link")
			}
			delete(into.dirs, name)
			into.setFile(name, f)
		}
	}
	for name, below := range from.dirs {
		if err := o.mergeDir(below, into, at, name); err != nil {
			return err
		}
	}
	return o.noteAttributes(from, into, at)
}

// whiteouts applies the whiteouts in a layer's directory to the tree. It must be called before
// files of the layer are added: a whiteout affects lower layers only, regardless of the order
// of entries.
func (o onto) whiteouts(from, into *dir, at string) error {
	if f := from.files[opaque]; f != nil && !f.link {
		clear(into.files)
		clear(into.dirs)
		info, err := from.attributes(o.objects)
		if err != nil {
			return err
		}
		if at != "" {
			into.info, into.guessed = info, from.guessed
		}
	}
	for name, f := range from.files {
		if !isWhiteout(name) || f.link {
			continue
		}
		gone, err := removed(name)
		if err != nil {
			return fmt.Errorf("/%s: %w", path.Join(at, name), err)
		}
		into.remove(gone)
	}
	return nil
}

// mergeDir merges a layer's directory into the tree's directory parent, at the path at. The tree keeps name, which must
// not be a part of the path: so it would keep the path, too.
func (o onto) mergeDir(from, parent *dir, at, name string) error {
	if parent.files[name] != nil {
		o.noteReplaced(at, name, "file or link", "directory")
	}
	delete(parent.files, name)
	if parent.dirs[name] == nil {
		info, err := from.attributes(o.objects)
		if err != nil {
			return err
		}
		made := newDir(info)
		made.guessed = from.guessed
		parent.setDir(name, made)
	}
	return o.merge(from, parent.dirs[name], path.Join(at, name))
}

// noteReplaced adds a note if what a lower layer has below /etc is replaced by another kind of file. A container has both
// where one layer says /etc and the other /usr/etc, so that nobody who builds the image sees that one is lost.
func (o onto) noteReplaced(at, name, had, has string) {
	if at == "usr/etc" || strings.HasPrefix(at, "usr/etc/") {
		o.notes.add("/%s is a %s in a lower layer, and is lost: derived layer %d has a %s there; /etc and /usr/etc are one directory",
			path.Join(at, name), had, o.number, has)
	}
}

// noteAttributes adds a note if a layer's attributes of a directory differ from those in the
// tree. The tree's attributes are kept, as in ostree-ext, so that hosts which are updated by
// rpm-ostree get the same tree.
func (o onto) noteAttributes(from, into *dir, at string) error {
	if !from.hasEntry {
		return nil
	}
	have, err := into.attributes(o.objects)
	if err != nil {
		return err
	}
	if info := from.info; have.UID != info.UID || have.GID != info.GID || (have.Mode^info.Mode)&0o7777 != 0 {
		o.notes.add("/%s keeps mode %04o and owner %d:%d: derived layer %d has %04o and %d:%d, which a directory that is there does not take",
			at, have.Mode&0o7777, have.UID, have.GID, o.number, info.Mode&0o7777, info.UID, info.GID)
	}
	return nil
}

// maxNotes is the maximum number of notes for one image.
const maxNotes = 20

// notes are for people. They list what is left out of an image, or changed.
type notes struct {
	texts []string
	more  int // how many were dropped
}

func (n *notes) add(format string, args ...any) {
	if len(n.texts) == maxNotes {
		n.more++
		return
	}
	n.texts = append(n.texts, fmt.Sprintf(format, args...))
}

// Notes returns notes for people about what was left out of the image, or changed.
func (t *Tree) Notes() []string {
	if t.notes.more == 0 {
		return t.notes.texts
	}
	return append(slices.Clone(t.notes.texts), fmt.Sprintf("and %d more of this kind", t.notes.more))
}
