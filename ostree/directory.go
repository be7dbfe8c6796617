package ostree

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"machine-pivot/ostree/gvariant"
)

// Directory is the names in a directory: a DirTree as a value.
type Directory struct {
	Files map[string]Checksum
	Dirs  map[string]DirChecksums
}

// DirChecksums are the two objects of a directory.
type DirChecksums struct{ Tree, Meta Checksum }

// ReadDirectory reads a directory of this import or of the repository.
func (im *Import) ReadDirectory(tree Checksum) (*Directory, error) {
	name := ObjectName{tree, DirTree}
	data, err := os.ReadFile(im.objectPath(name))
	if err != nil {
		return nil, fmt.Errorf("cannot load directory: %w", err)
	}
	parsed, err := parseDirTree(data)
	if err != nil {
		return nil, corrupt(name, "%v", err)
	}
	d := &Directory{make(map[string]Checksum, len(parsed.files)), make(map[string]DirChecksums, len(parsed.dirs))}
	for _, f := range parsed.files {
		d.Files[f.name] = f.file
	}
	for _, e := range parsed.dirs {
		d.Dirs[e.name] = DirChecksums{e.tree, e.meta}
	}
	return d, nil
}

// AddDirectory adds a directory.
func (im *Import) AddDirectory(ctx context.Context, d *Directory) (Checksum, error) {
	tree := &dirTree{}
	for _, name := range slices.Sorted(maps.Keys(d.Files)) {
		tree.files = append(tree.files, fileEntry{name, d.Files[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(d.Dirs)) {
		tree.dirs = append(tree.dirs, dirEntry{name, d.Dirs[name].Tree, d.Dirs[name].Meta})
	}
	return im.addTree(ctx, tree)
}

// DirInfo is what a directory has beside its names: a DirMeta as a value.
type DirInfo struct {
	UID, GID uint32
	Mode     uint32 // the type bits may be missing
	Xattrs   map[string][]byte
}

// ReadDirInfo reads a DirMeta of this import or of the repository.
func (im *Import) ReadDirInfo(meta Checksum) (DirInfo, error) {
	name := ObjectName{meta, DirMeta}
	data, err := os.ReadFile(im.objectPath(name))
	if err != nil {
		return DirInfo{}, fmt.Errorf("cannot load directory metadata: %w", err)
	}
	value, err := gvariant.Decode(dirMetaType, data)
	if err != nil {
		return DirInfo{}, corrupt(name, "%v", err)
	}
	t := value.(gvariant.Tuple)
	xattrs, err := parseXattrs(t[3])
	if err != nil {
		return DirInfo{}, corrupt(name, "%v", err)
	}
	d := DirInfo{bigEndian(t[0].(uint32)), bigEndian(t[1].(uint32)), bigEndian(t[2].(uint32)), map[string][]byte{}}
	for _, x := range xattrs {
		d.Xattrs[x.name] = x.value
	}
	return d, nil
}

// AddDirInfo adds a DirMeta.
func (im *Import) AddDirInfo(ctx context.Context, d DirInfo) (Checksum, error) {
	data, err := gvariant.Encode(dirMetaType,
		gvariant.Tuple{bigEndian(d.UID), bigEndian(d.GID), bigEndian(unix.S_IFDIR | d.Mode&0o7777), xattrValue(d.Xattrs)})
	if err != nil {
		return Checksum{}, fmt.Errorf("cannot make directory metadata: %w", err)
	}
	return im.addMade(ctx, DirMeta, data)
}

// FilesBelow are the file objects of a directory and of those below it.
func (im *Import) FilesBelow(tree Checksum) (map[Checksum]bool, error) {
	files, seen := map[Checksum]bool{}, map[Checksum]bool{}
	for todo := []Checksum{tree}; len(todo) > 0; {
		tree, todo = todo[len(todo)-1], todo[:len(todo)-1]
		d, err := im.ReadDirectory(tree)
		if err != nil {
			return nil, err
		}
		for _, file := range d.Files {
			files[file] = true
		}
		for _, below := range d.Dirs {
			if !seen[below.Tree] {
				seen[below.Tree] = true
				todo = append(todo, below.Tree)
			}
		}
	}
	return files, nil
}
