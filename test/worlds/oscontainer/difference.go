package oscontainer

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// Difference returns the entries of a layer that changes the directory before to the directory after, like a container
// build that runs programs. New and changed files are as in FromTree, removed ones are whiteouts.
func Difference(before, after string) ([]Entry, error) {
	had, err := byName(before)
	if err != nil {
		return nil, err
	}
	has, err := byName(after)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for _, name := range slices.Sorted(maps.Keys(has)) {
		same := false
		if old, there := had[name]; there {
			if same, err = old.same(has[name]); err != nil {
				return nil, fmt.Errorf("cannot compare %s in %s and %s: %w", name, before, after, err)
			}
		}
		if !same {
			entries = append(entries, has[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(had)) {
		_, stays := has[name]
		_, parent := has[path.Dir(name)]
		if !stays && (parent || path.Dir(name) == ".") {
			entries = append(entries, File(path.Join(path.Dir(name), ".wh."+path.Base(name)), ""))
		}
	}
	return entries, nil
}

// byName returns the entries of a directory by name, without trailing slashes.
func byName(dir string) (map[string]Entry, error) {
	entries, err := FromTree(dir)
	if err != nil {
		return nil, err
	}
	all := make(map[string]Entry, len(entries))
	for _, e := range entries {
		all[strings.TrimSuffix(e.Name, "/")] = e
	}
	return all, nil
}

// same reports whether two entries result in the same file.
func (e Entry) same(other Entry) (bool, error) {
	if e.Typeflag != other.Typeflag || e.Mode != other.Mode || e.Uid != other.Uid || e.Gid != other.Gid || e.Linkname != other.Linkname ||
		!maps.Equal(e.PAXRecords, other.PAXRecords) {
		return false, nil
	}
	if e.Typeflag != tar.TypeReg {
		return true, nil
	}
	mine, err := e.bytes()
	if err != nil {
		return false, err
	}
	theirs, err := other.bytes()
	return bytes.Equal(mine, theirs), err
}

func (e Entry) bytes() ([]byte, error) {
	body, _, err := e.content()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(body)
}
