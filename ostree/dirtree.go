package ostree

import (
	"fmt"
	"slices"
	"strings"

	"machine-pivot/ostree/gvariant"
)

// dirTree is the content of a DirTree object: the names in a directory, sorted.
type dirTree struct {
	files []fileEntry
	dirs  []dirEntry
}

type fileEntry struct {
	name string
	file Checksum
}

type dirEntry struct {
	name       string
	tree, meta Checksum
}

func parseDirTree(data []byte) (*dirTree, error) {
	value, err := gvariant.Decode(dirTreeType, data)
	if err != nil {
		return nil, err
	}
	t := value.(gvariant.Tuple)
	d := &dirTree{}
	for i, kind := range t {
		last := ""
		for _, entry := range kind.([]any) {
			fields := entry.(gvariant.Tuple)
			if err := checkName(fields[0].(string), last); err != nil {
				return nil, err
			}
			last = fields[0].(string)
			if err := d.add(i == 0, fields); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

func (d *dirTree) add(file bool, fields gvariant.Tuple) error {
	name := fields[0].(string)
	first, err := checksumOf(fields[1])
	if err != nil {
		return err
	}
	if file {
		d.files = append(d.files, fileEntry{name, first})
		return nil
	}
	meta, err := checksumOf(fields[2])
	d.dirs = append(d.dirs, dirEntry{name, first, meta})
	return err
}

// checkName checks a name in a directory: one path component, in order, once.
func checkName(name, last string) error {
	switch {
	case name == "", name == ".", name == "..", strings.Contains(name, "/"):
		return fmt.Errorf("bad file name %q", name)
	case name <= last:
		return fmt.Errorf("file names %q and %q are not in order", last, name)
	}
	return nil
}

// objects are the objects that the directory refers to.
func (d *dirTree) objects() []ObjectName {
	names := make([]ObjectName, 0, len(d.files)+2*len(d.dirs))
	for _, f := range d.files {
		names = append(names, ObjectName{f.file, File})
	}
	for _, e := range d.dirs {
		names = append(names, ObjectName{e.tree, DirTree}, ObjectName{e.meta, DirMeta})
	}
	return names
}

// dir finds a directory by name.
func (d *dirTree) dir(name string) (int, bool) {
	return slices.BinarySearchFunc(d.dirs, name, func(e dirEntry, name string) int { return strings.Compare(e.name, name) })
}

// encode is the DirTree object.
func (d *dirTree) encode() ([]byte, error) {
	files, dirs := make([]any, len(d.files)), make([]any, len(d.dirs))
	for i, f := range d.files {
		files[i] = gvariant.Tuple{f.name, f.file[:]}
	}
	for i, e := range d.dirs {
		dirs[i] = gvariant.Tuple{e.name, e.tree[:], e.meta[:]}
	}
	return gvariant.Encode(dirTreeType, gvariant.Tuple{files, dirs})
}
