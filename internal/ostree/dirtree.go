package ostree

import (
	"bytes"
	"fmt"
	"iter"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree/gvariant"
)

// treeObject is a validated DirTree object. It stays serialized, because decoding a
// maliciously constructed object could take far more memory.
type treeObject struct{ files, dirs gvariant.Value }

// fileEntry is a file or symbolic link in a directory.
type fileEntry struct {
	name []byte
	file Checksum
}

// dirEntry is a subdirectory of a directory.
type dirEntry struct {
	name       []byte
	tree, meta Checksum
}

// openTree validates a DirTree object: the names of files and the names of directories must
// each be sorted, and no name may occur twice.
func openTree(data []byte) (treeObject, error) {
	value, err := dirTreeType.Open(data)
	if err != nil {
		return treeObject{}, err
	}
	d := treeObject{value.Field(0), value.Field(1)}
	if err := checkEntries(d.files, 1); err != nil {
		return treeObject{}, err
	}
	if err := checkEntries(d.dirs, 2); err != nil {
		return treeObject{}, err
	}
	return d, d.checkKinds()
}

// checkEntries checks entries that consist of a name and the given number of checksums.
func checkEntries(entries gvariant.Value, checksums int) error {
	var last []byte
	for entry := range entries.Members() {
		name := nameOf(entry)
		if err := checkName(name, last); err != nil {
			return err
		}
		last = name
		for n := range checksums {
			if _, err := checksumIn(entry.Field(1 + n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkKinds returns an error if a name is both a file and a directory. Both lists must be
// sorted.
func (d treeObject) checkKinds() error {
	var dirs [][]byte
	for e := range d.dirs.Members() {
		dirs = append(dirs, nameOf(e))
	}
	for e := range d.files.Members() {
		file := nameOf(e)
		for len(dirs) > 0 && bytes.Compare(dirs[0], file) < 0 {
			dirs = dirs[1:]
		}
		if len(dirs) > 0 && bytes.Equal(dirs[0], file) {
			return fmt.Errorf("%q is both a file and a directory", file)
		}
	}
	return nil
}

// checkName checks that a name is a single path component and sorts after the last one.
func checkName(name, last []byte) error {
	switch {
	case len(name) == 0, string(name) == ".", string(name) == "..", bytes.IndexByte(name, '/') >= 0, !utf8.Valid(name):
		return fmt.Errorf("bad file name %q", name)
	case len(name) > unix.NAME_MAX:
		return fmt.Errorf("file name %.20q… has %d bytes, more than %d", name, len(name), unix.NAME_MAX)
	case bytes.Compare(name, last) <= 0:
		return fmt.Errorf("file names %q and %q are not in order", last, name)
	}
	return nil
}

// nameOf returns the name of an entry.
func nameOf(entry gvariant.Value) []byte { return bytes.TrimSuffix(entry.Field(0).Bytes(), []byte{0}) }

// allFiles iterates over the files and symbolic links, sorted by name.
func (d treeObject) allFiles() iter.Seq[fileEntry] {
	return func(yield func(fileEntry) bool) {
		for e := range d.files.Members() {
			if !yield(fileEntry{nameOf(e), Checksum(e.Field(1).Bytes())}) {
				return
			}
		}
	}
}

// allDirs iterates over the directories, sorted by name.
func (d treeObject) allDirs() iter.Seq[dirEntry] {
	return func(yield func(dirEntry) bool) {
		for e := range d.dirs.Members() {
			if !yield(dirEntry{nameOf(e), Checksum(e.Field(1).Bytes()), Checksum(e.Field(2).Bytes())}) {
				return
			}
		}
	}
}

// dir finds a directory by name.
func (d treeObject) dir(name string) (dirEntry, bool) {
	for e := range d.allDirs() {
		if string(e.name) == name {
			return e, true
		}
	}
	return dirEntry{}, false
}

// file finds a file or symbolic link by name.
func (d treeObject) file(name string) (fileEntry, bool) {
	for e := range d.allFiles() {
		if string(e.name) == name {
			return e, true
		}
	}
	return fileEntry{}, false
}
