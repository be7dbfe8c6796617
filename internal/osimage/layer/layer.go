package layer

import (
	"iter"
	"path"
	"strings"

	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
)

// Layer is the tree of one derived layer, including its whiteouts. One goroutine must add the
// entries in order; the functions that AddFile returns may be called by other goroutines.
type Layer struct {
	root   *dir
	hidden map[string]*file // files below objectStore, which only hard links refer to
	links  []link
	memory int64 // estimated memory of names and directories, in bytes

	foreign foreign // attributes of other systems

	lower bool // it has files of lower layers, by hard links to their paths
	part  bool // it lacks what is not seen on its base (dropForeign)

	// written is the root that Write has added; nil before that, or if the layer has changed
	// since.
	written *ostree.DirChecksums
}

// link is a hard link of a layer.
type link struct {
	path, target string
	to           *file // the file that stands for the link in the tree
	had          *file // what the layer had at the target before the link; nil if nothing
	later        *file // what it has there in the end, for a link that had nothing
}

// New returns a layer without entries.
func New() *Layer {
	return &Layer{root: implied(0, 0), hidden: map[string]*file{}}
}

// The memory of a directory and of a file without their names, in bytes (measured).
const (
	dirMemory  = 480
	fileMemory = 160
)

// foreign counts extended attributes of other systems, which are left out.
type foreign struct {
	number      int
	name, first string // of the first attribute, and of its file
}

// leaveOut notes that a file of the layer loses an attribute that Linux does not have.
func (l *Layer) leaveOut(attribute, file string) {
	if l.foreign.number++; l.foreign.number == 1 {
		l.foreign.name, l.foreign.first = attribute, file
	}
}

// Memory returns the estimated memory of the layer, in bytes.
func (l *Layer) Memory() int64 { return l.memory }

// Kept reports whether the entry with the given name must be added. Other entries are ignored,
// whatever their type. Kept returns an error if the name is malformed.
func (l *Layer) Kept(name string) (bool, error) {
	at, kept, err := placeOf(name)
	return err == nil && (kept || strings.HasPrefix(at, objectStore+"/")), err
}

// AddDir adds a directory.
func (l *Layer) AddDir(name string, info ostree.DirInfo) error {
	at, kept, err := placeOf(name)
	if err != nil || !kept {
		return err
	}
	if at == "" {
		l.root.setAttributes(info)
		return nil
	}
	l.memory += int64(len(name))
	parent, base, err := l.parent(at, info.UID, info.GID)
	if err != nil {
		return err
	}
	if parent.files[base] != nil {
		return errTwice(at)
	}
	if parent.dirs[base] == nil {
		l.makeDir(parent, base, 0, 0)
	}
	for name, value := range info.Xattrs {
		l.memory += int64(len(name) + len(value))
	}
	parent.dirs[base].setAttributes(info)
	return nil
}

// setAttributes sets a directory's owner, mode and extended attributes from its entry.
func (d *dir) setAttributes(info ostree.DirInfo) { d.info, d.hasEntry = &info, true }

// AddFile adds a file or symbolic link. When its object is known, the caller must call set
// with the object, from any goroutine, before Complete. guessed means that the object has the
// label for this name according to the policy that is passed to Finish.
func (l *Layer) AddFile(name string, uid, gid uint32, symlink bool) (set func(object ostree.Checksum, guessed bool), err error) {
	f := &file{link: symlink}
	at, kept, err := placeOf(name)
	l.memory += fileMemory + int64(len(name))
	switch {
	case err != nil:
		return nil, err
	case !kept:
		l.hidden[at] = f
	default:
		err = l.put(at, uid, gid, f)
	}
	return func(object ostree.Checksum, guessed bool) { f.object, f.guessed = object, guessed }, err
}

// resolveTo gives a hard link the object of its target. The label of the target is for
// another name, so it does not count as guessed.
func (f *file) resolveTo(target *file) { f.object, f.link = target.object, target.link }

// AddLink adds a hard link: to the file that its target is at this point, whatever has that name later, as where the layer
// is extracted. That is the layer's file, or that of lower layers. Only if neither has one, a later entry of the layer is meant,
// as ostree takes it.
func (l *Layer) AddLink(name, target string, uid, gid uint32) error {
	at, kept, err := placeOf(name)
	if err != nil {
		return err
	}
	to, _, err := placeOf(target)
	if err != nil {
		return err
	}
	f, had := &file{}, l.find(to)
	l.memory += 2*fileMemory + int64(len(name)+len(target))
	if kept {
		err = l.put(at, uid, gid, f)
	} else {
		l.hidden[at] = f
	}
	l.links = append(l.links, link{path: at, target: to, to: f, had: had})
	return err
}

// put adds a file at a path; a later entry replaces an earlier one.
func (l *Layer) put(at string, uid, gid uint32, f *file) error {
	parent, base, err := l.parent(at, uid, gid)
	if err != nil {
		return err
	}
	if parent.dirs[base] != nil {
		return errTwice(at)
	}
	parent.setFile(base, f)
	return nil
}

// parent returns the parent directory of a path. It makes missing directories.
func (l *Layer) parent(at string, uid, gid uint32) (parent *dir, base string, err error) {
	if at == "" {
		return nil, "", imagefault.Misbuilt("the root is no directory")
	}
	parent = l.root
	missing := false
	before, base := path.Split(at)
	for name := range namesOf(before) {
		if parent.files[name] != nil {
			return nil, "", errTwice(strings.TrimSuffix(before, "/"))
		}
		if parent.dirs[name] == nil {
			l.makeDir(parent, name, uid, gid)
			missing = true
		}
		parent = parent.dirs[name]
	}
	if missing {
		l.setOwners(before, uid, gid)
	}
	return parent, base, nil
}

func (l *Layer) makeDir(parent *dir, name string, uid, gid uint32) {
	l.memory += dirMemory
	parent.setDir(name, implied(uid, gid))
}

// namesOf iterates over the names in a path.
func namesOf(path string) iter.Seq[string] {
	return strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' })
}

// setOwners sets the owner of all directories of a path that have no entry of their own. It is
// called with the owner of an entry for which one of them was made, because libostree then
// makes all of them again.
func (l *Layer) setOwners(at string, uid, gid uint32) {
	d := l.root
	for name := range namesOf(at) {
		if d = d.dirs[name]; !d.hasEntry {
			d.info.UID, d.info.GID = uid, gid
		}
	}
}

// errTwice is the error for a name that is both a directory and a file. Tools differ in which
// of the two they extract.
func errTwice(at string) error {
	return imagefault.Misbuilt("/%s is a directory and a file in one layer", at)
}

// Complete resolves the hard links to what the layer had at their targets before them. Those to what lower layers or later
// entries have are left for the merge, and so are links to these links.
func (l *Layer) Complete() {
	var others []link
	open := map[*file]bool{} // the files of others
	for _, k := range l.links {
		if k.had != nil && !open[k.had] {
			k.to.resolveTo(k.had)
			continue
		}
		if k.had == nil {
			k.later = l.find(k.target)
			l.lower = l.lower || k.byPath() || k.later != nil
		}
		open[k.to] = true
		others = append(others, k)
	}
	l.links = others
}

// byPath reports whether the target of a hard link is named by its path, which leads to another file in each
// image. An object of the base is named by its checksum.
func (k link) byPath() bool { return !strings.HasPrefix(k.target, baseObjects) }

// OnlyOfOS reports whether all top-level names of a complete layer are part of every ostree host.
func (l *Layer) OnlyOfOS() bool {
	for name := range l.root.names() {
		if !isOfOS(name) {
			return false
		}
	}
	return true
}

// find returns the layer's file at a path, or nil.
func (l *Layer) find(at string) *file {
	if f := l.hidden[at]; f != nil {
		return f
	}
	d := l.root
	before, base := path.Split(at)
	for name := range namesOf(before) {
		if d = d.dirs[name]; d == nil {
			return nil
		}
	}
	return d.files[base]
}
