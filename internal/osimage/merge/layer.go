package merge

import (
	"path"
	"strings"

	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
)

// Layer is the tree of one derived layer, whiteouts included. It is filled by one
// goroutine, in the order of the layer's entries; objects may be set by others.
type Layer struct {
	root   *dir
	hidden map[string]*file // below objectStore: only hard links mean them
	links  []link
	memory int64 // that names and directories take, in bytes, roughly

	// written is the layer as it was written before the merge, or nil if it was not, or
	// has changed since.
	written *ostree.DirChecksums
}

// link is a hard link, in order.
type link struct {
	path, target string
	to           *file // what it becomes
}

// NewLayer is a layer without entries.
func NewLayer() *Layer {
	return &Layer{root: implied(0, 0), hidden: map[string]*file{}}
}

// What names take in memory, in bytes, beside their characters: measured, rounded up.
const (
	dirMemory  = 480
	fileMemory = 160
)

// Memory is how much memory the layer takes, in bytes, roughly.
func (l *Layer) Memory() int64 { return l.memory }

// Kept reports whether an entry has a place in a commit, by the name it has in the
// layer; what a commit cannot have may be of any type there. A name that no layer
// may have is an error.
func (l *Layer) Kept(name string) (bool, error) {
	at, kept, err := place(name)
	return err == nil && (kept || strings.HasPrefix(at, objectStore+"/")), err
}

// AddDir adds a directory.
func (l *Layer) AddDir(name string, info ostree.DirInfo) error {
	at, kept, err := place(name)
	if err != nil || !kept {
		return err
	}
	if at == "" {
		l.root.describe(info)
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
	parent.dirs[base].describe(info)
	return nil
}

// describe gives a directory what an entry says of it.
func (d *dir) describe(info ostree.DirInfo) { d.info, d.described = &info, true }

// AddFile adds a file or symbolic link. set tells its object, when that is known, and
// whether that has the label that a policy has for this name, which Finish is told too:
// by any goroutine, but before Complete.
func (l *Layer) AddFile(name string, uid, gid uint32, symlink bool) (set func(object ostree.Checksum, guessed bool), err error) {
	f := &file{link: symlink}
	at, kept, err := place(name)
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

// become makes a hard link the file that it leads to, whose label is of another name.
func (f *file) become(target *file) { f.object, f.link = target.object, target.link }

// AddLink adds a hard link. What it means is known when the layer was read, or only
// when it is merged: it may be a lower layer's file.
func (l *Layer) AddLink(name, target string, uid, gid uint32) error {
	at, kept, err := place(name)
	if err != nil {
		return err
	}
	to, _, err := place(target)
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

// parent is the directory of a path, made where no entry has told of it yet.
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

// own gives the directories of a path that no entry describes an owner: that of the
// entry for which one of them had to be made. libostree makes all of them anew then.
func (l *Layer) own(at string, uid, gid uint32) {
	d := l.root
	for name := range strings.SplitSeq(strings.TrimSuffix(at, "/"), "/") {
		if name == "" {
			continue
		}
		if d = d.dirs[name]; !d.described {
			d.info.UID, d.info.GID = uid, gid
		}
	}
}

// errTwice is a name that stands for two things. Which of them counts depends on the
// tool, so that none can be right.
func errTwice(at string) error {
	return imagefault.Damaged("/%s is a directory and a file in one layer", at)
}

// Complete resolves the hard links within the layer, which may lead to later entries
// and to one another. Those that lead elsewhere are left for the merge.
func (l *Layer) Complete() error {
	open := make(map[*file]*link, len(l.links))
	for i := range l.links {
		open[l.links[i].to] = &l.links[i]
	}
	var elsewhere []link
	for i := range l.links {
		chain, end, err := l.follow(&l.links[i], open)
		if err != nil {
			return err
		}
		for _, k := range chain {
			delete(open, k.to)
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

// follow follows a hard link that is still open over others to a file of the layer,
// or to nil if the last one leads elsewhere.
func (l *Layer) follow(k *link, open map[*file]*link) (chain []*link, end *file, err error) {
	seen := map[*link]bool{}
	for ; k != nil && open[k.to] == k; k = open[end] {
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
