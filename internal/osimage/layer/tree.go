package layer

import (
	"context"
	"io"
	"iter"

	"machine-pivot/internal/ostree"
)

// Objects stores the objects of trees. *ostree.Import implements it.
type Objects interface {
	ReadDirectory(tree ostree.Checksum) (*ostree.Directory, error)
	ReadDirInfo(meta ostree.Checksum) (ostree.DirInfo, error)
	StatFile(c ostree.Checksum) (ostree.FileStat, error)
	OpenFile(c ostree.Checksum) (io.ReadCloser, error)
	ReadLink(c ostree.Checksum) (string, error)
	FilesBelow(tree ostree.Checksum) (map[ostree.Checksum]bool, error)

	AddDirectory(ctx context.Context, d *ostree.Directory) (ostree.Checksum, error)
	AddDirInfo(ctx context.Context, d ostree.DirInfo) (ostree.Checksum, error)
	Relabel(ctx context.Context, c ostree.Checksum, label string) (ostree.Checksum, error)
	MoveLabel(ctx context.Context, c ostree.Checksum, label string) (ostree.Checksum, error)
}

// dir is a directory of a tree.
type dir struct {
	// saved are the directory's objects in the repository; zero if it has none. load reads
	// the directory's names from them when they are needed.
	saved  ostree.DirChecksums
	loaded bool

	info     *ostree.DirInfo // owner, mode and extended attributes; nil: as saved
	hasEntry bool            // the layer has an entry for the directory
	guessed  bool            // info has the label that was guessed for this name
	files    map[string]*file
	dirs     map[string]*dir

	counter *nameCounter // counts the names that load reads; nil: not counted
}

// file is a file or symbolic link of a tree.
type file struct {
	object ostree.Checksum
	link   bool // it is a symbolic link

	guessed bool // the object has the label that was guessed for this name
}

func newDir(info *ostree.DirInfo) *dir { return &dir{loaded: true, info: info} }

// implied returns a directory without an entry. As in libostree, it has the owner of the
// entry that needs it (--tar-autocreate-parents; see Layer.setOwners).
func implied(uid, gid uint32) *dir {
	return newDir(&ostree.DirInfo{UID: uid, GID: gid, Mode: 0o755})
}

// setFile adds or replaces the file with a name. Most directories of a layer have few names
// or none, so the maps are made when they are needed.
func (d *dir) setFile(name string, f *file) {
	if d.files == nil {
		d.files = map[string]*file{}
	}
	d.files[name] = f
}

func (d *dir) setDir(name string, below *dir) {
	if d.dirs == nil {
		d.dirs = map[string]*dir{}
	}
	d.dirs[name] = below
}

// names iterates over the names in a directory that is loaded.
func (d *dir) names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range d.files {
			if !yield(name) {
				return
			}
		}
		for name := range d.dirs {
			if !yield(name) {
				return
			}
		}
	}
}

// remove removes a name.
func (d *dir) remove(name string) {
	delete(d.files, name)
	delete(d.dirs, name)
}

// load reads the names of a directory that is in the repository.
func (d *dir) load(store Objects) error {
	if d.loaded {
		return nil
	}
	saved, err := store.ReadDirectory(d.saved.Tree)
	if err != nil {
		return err
	}
	if err := d.counter.countSaved(saved); err != nil {
		return err
	}
	d.files, d.dirs = make(map[string]*file, len(saved.Files)), make(map[string]*dir, len(saved.Dirs))
	for name, object := range saved.Files {
		d.files[name] = &file{object: object}
		if isWhiteout(name) { // file.link is used for these names only
			stat, err := store.StatFile(object)
			if err != nil {
				return err
			}
			d.files[name].link = isLink(stat.Mode)
		}
	}
	for name, below := range saved.Dirs {
		d.dirs[name] = &dir{saved: below, counter: d.counter}
	}
	d.loaded = true
	return nil
}

// attributes returns the directory's owner, mode and extended attributes.
func (d *dir) attributes(store Objects) (*ostree.DirInfo, error) {
	if d.info == nil {
		info, err := store.ReadDirInfo(d.saved.Meta)
		if err != nil {
			return nil, err
		}
		d.info = &info
	}
	return d.info, nil
}
