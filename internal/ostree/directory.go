package ostree

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/ostree/gvariant"
)

// Directory is the content of a DirTree: the entries of a directory, by name.
type Directory struct {
	Files map[string]Checksum
	Dirs  map[string]DirChecksums
}

// DirChecksums name the two objects of a directory.
type DirChecksums struct{ Tree, Meta Checksum }

// ReadDirectory reads a directory.
func (at Objects) ReadDirectory(tree Checksum) (*Directory, error) {
	parsed, err := at.loadTree(tree)
	if err != nil {
		return nil, err
	}
	d := &Directory{map[string]Checksum{}, map[string]DirChecksums{}}
	for f := range parsed.allFiles() {
		d.Files[string(f.name)] = f.file
	}
	for e := range parsed.allDirs() {
		d.Dirs[string(e.name)] = DirChecksums{e.tree, e.meta}
	}
	return d, nil
}

// maxInDirectory is the maximum number of names in a directory that is added. Making its DirTree
// takes 250 bytes for each. Directories of an OS have up to 20,000.
const maxInDirectory = 120_000

// size returns the size of the DirTree in bytes, without what aligns its parts.
func (d *Directory) size() (bytes int) {
	const end, file, dir = 1, sha256.Size + 1, 2*sha256.Size + 2 // each with the offsets in it
	for name := range d.Files {
		bytes += len(name) + end + file
	}
	for name := range d.Dirs {
		bytes += len(name) + end + dir
	}
	return bytes
}

// AddDirectory adds a DirTree and returns its checksum. The error is an InvalidError if it is larger
// than the metadata that an image may have, or has too many names.
func (im *Import) AddDirectory(ctx context.Context, d *Directory) (Checksum, error) {
	if n := len(d.Files) + len(d.Dirs); n > maxInDirectory {
		return Checksum{}, &InvalidError{guard.TooMuch("a directory of %d names, more than %d", n, maxInDirectory)}
	}
	if size := d.size(); size > maxMetadata {
		return Checksum{}, &InvalidError{guard.TooMuch("a directory of %d bytes, more than %d", size, maxMetadata)}
	}
	files, dirs := []any{}, []any{}
	for _, name := range slices.Sorted(maps.Keys(d.Files)) {
		file := d.Files[name]
		files = append(files, gvariant.Tuple{name, file[:]})
	}
	for _, name := range slices.Sorted(maps.Keys(d.Dirs)) {
		below := d.Dirs[name]
		dirs = append(dirs, gvariant.Tuple{name, below.Tree[:], below.Meta[:]})
	}
	data, err := dirTreeType.Encode(gvariant.Tuple{files, dirs})
	if err != nil {
		return Checksum{}, fmt.Errorf("cannot make directory: %w", err)
	}
	return im.addMade(DirTree, data)
}

// DirInfo is the content of a DirMeta: owner, mode and extended attributes of a directory.
type DirInfo struct {
	UID, GID uint32
	Mode     uint32 // the file type bits are optional
	Xattrs   map[string][]byte
}

// ReadDirInfo reads a DirMeta.
func (at Objects) ReadDirInfo(meta Checksum) (DirInfo, error) {
	name := ObjectName{meta, DirMeta}
	data, err := at.readMetadata(name)
	if err != nil {
		return DirInfo{}, fmt.Errorf("cannot load directory metadata: %w", err)
	}
	o, xattrs, err := parseDirMeta(data)
	if err != nil {
		return DirInfo{}, corrupt(name, "%v", err)
	}
	d := DirInfo{o.uid, o.gid, o.mode, map[string][]byte{}}
	for _, x := range xattrs {
		d.Xattrs[x.name] = x.value
	}
	return d, nil
}

// AddDirInfo adds a DirMeta and returns its checksum. If no object can have these attributes,
// the error is an InvalidError.
func (im *Import) AddDirInfo(ctx context.Context, d DirInfo) (Checksum, error) {
	data, err := dirMetaType.Encode(
		gvariant.Tuple{bigEndian(d.UID), bigEndian(d.GID), bigEndian(unix.S_IFDIR | d.Mode&0o7777), xattrValue(d.Xattrs)})
	if err != nil {
		return Checksum{}, fmt.Errorf("cannot make directory metadata: %w", err)
	}
	n := ObjectName{Checksum(sha256.Sum256(data)), DirMeta}
	if im.state(n) != absent { // most directories share one DirMeta, which has been checked already
		return n.Checksum, nil
	}
	if err := checkDirMeta(data); err != nil {
		return Checksum{}, &InvalidError{err}
	}
	if err := im.checkDirLabel(n, data); err != nil {
		return Checksum{}, err
	}
	return im.addMade(DirMeta, data)
}

// FilesBelow returns the file objects in a directory and in all directories below it.
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
