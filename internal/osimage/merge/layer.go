package merge

import (
	"path"
	"strings"

	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
)

// Layer is the tree of one derived layer, with its whiteouts. One goroutine adds the entries
// in their order; the functions that AddFile returns may be called by others.
type Layer struct {
	root   *dir
	hidden map[string]*file // files below objectStore, which only hard links refer to
	links  []link
	memory int64 // an estimate of what names and directories take, in bytes

	// written is the root that Write has added; nil if it has not, or the layer has changed
	// since.
	written *ostree.DirChecksums
}

// link is a hard link of a layer.
type link struct {
	path, target string
	to           *file // the file that stands for the link in the tree
}

// NewLayer is a layer without entries.
func NewLayer() *Layer {
	return &Layer{root: implied(0, 0), hidden: map[string]*file{}}
}

// What a directory and a file take in memory beside their names, in bytes (measured).
const (
	dirMemory  = 480
	fileMemory = 160
)

// Memory is an estimate of the memory that the layer takes, in bytes.
func (l *Layer) Memory() int64 { return l.memory }

// Kept reports whether the entry with a name must be added. All others are ignored,
// whatever their type. A malformed name is an error.
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

// AddFile adds a file or symbolic link. The caller calls set with its object when that is
// known, from any goroutine, before Complete; guessed says that the object has the label
// that the policy passed to Finish has for this name.
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

// become makes a hard link the file that it leads to. The label of that file is for another
// name, so it does not count as guessed.
func (f *file) become(target *file) { f.object, f.link = target.object, target.link }

// AddLink adds a hard link. It is resolved by Complete, or by the merge if it leads to a
// lower layer's file.
func (l *Layer) AddLink(name, target string, uid, gid uint32) error {
	at, kept, err := placeOf(name)
	if err != nil {
		return err
	}
	to, _, err := placeOf(target)
	if err != nil {
		return err
	}
	f := &file{}
	l.memory += 2*fileMemory + int64(len(name)+len(target))
	if kept {
		err = l.put(at, uid, gid, f)
	} else {
		l.hidden[at] = f
	}
	l.links = append(l.links, link{path: at, target: to, to: f})
	return err
}

// put gives a file its name; a later entry replaces an earlier one.
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

// parent is the directory that a path is in. Missing directories are made.
func (l *Layer) parent(at string, uid, gid uint32) (parent *dir, base string, err error) {
	if at == "" {
		return nil, "", imagefault.Damaged("the root is no directory")
	}
	parent = l.root
	lacking := false
	before, base := path.Split(at)
	for name := range strings.SplitSeq(strings.TrimSuffix(before, "/"), "/") {
		if name == "" {
			continue
		}
		if parent.files[name] != nil {
			return nil, "", errTwice(strings.TrimSuffix(before, "/"))
		}
		if parent.dirs[name] == nil {
			l.makeDir(parent, name, uid, gid)
			lacking = true
		}
		parent = parent.dirs[name]
	}
	if lacking {
		l.own(before, uid, gid)
	}
	return parent, base, nil
}

func (l *Layer) makeDir(parent *dir, name string, uid, gid uint32) {
	l.memory += dirMemory
	parent.setDir(name, implied(uid, gid))
}

// own sets the owner of all directories of a path that have no entry, to that of the entry
// for which one of them had to be made: libostree makes all of them anew then.
func (l *Layer) own(at string, uid, gid uint32) {
	d := l.root
	for name := range strings.SplitSeq(strings.TrimSuffix(at, "/"), "/") {
		if name == "" {
			continue
		}
		if d = d.dirs[name]; !d.hasEntry {
			d.info.UID, d.info.GID = uid, gid
		}
	}
}

// errTwice refuses a name that is both a directory and a file: tools differ in which of
// them they extract.
func errTwice(at string) error {
	return imagefault.Damaged("/%s is a directory and a file in one layer", at)
}

// Complete resolves the hard links within the layer. They may lead to later entries, and
// to other hard links. Links that lead into lower layers are left for the merge.
func (l *Layer) Complete() error {
	unresolved := make(map[*file]*link, len(l.links))
	for i := range l.links {
		unresolved[l.links[i].to] = &l.links[i]
	}
	var elsewhere []link
	for i := range l.links {
		chain, end, err := l.follow(&l.links[i], unresolved)
		if err != nil {
			return err
		}
		for _, k := range chain {
			delete(unresolved, k.to)
			if end != nil {
				k.to.become(end)
				continue
			}
			k.target = chain[len(chain)-1].target
			elsewhere = append(elsewhere, *k)
		}
	}
	l.links = elsewhere
	return nil
}

// follow follows a hard link over other unresolved ones. end is the file of this layer that
// the last one leads to, or nil if that is not in this layer.
func (l *Layer) follow(k *link, unresolved map[*file]*link) (chain []*link, end *file, err error) {
	seen := map[*link]bool{}
	for ; k != nil && unresolved[k.to] == k; k = unresolved[end] {
		if seen[k] {
			return nil, nil, imagefault.Damaged("the hard link /%s leads to itself", k.path)
		}
		seen[k] = true
		chain = append(chain, k)
		if end = l.find(k.target); end == nil {
			break
		}
	}
	return chain, end, nil
}

// find is the layer's file of a path, or nil.
func (l *Layer) find(at string) *file {
	if f := l.hidden[at]; f != nil {
		return f
	}
	d := l.root
	before, base := path.Split(at)
	for name := range strings.SplitSeq(strings.TrimSuffix(before, "/"), "/") {
		if name != "" {
			if d = d.dirs[name]; d == nil {
				return nil
			}
		}
	}
	return d.files[base]
}
