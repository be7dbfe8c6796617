package oscontainer

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// FromTree returns the entries of a layer with all files of a directory, sorted by name, as of a container build:
// /usr/etc becomes /etc, and there are no SELinux labels. Contents are read when the layer is written.
func FromTree(dir string) ([]Entry, error) {
	var entries []Entry
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		e, err := fromFile(path, strings.TrimPrefix(path, dir+"/"))
		entries = append(entries, e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make a layer of %s: %w", dir, err)
	}
	return entries, nil
}

func fromFile(path, name string) (e Entry, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return e, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	if rest, ok := strings.CutPrefix(name, "usr/etc"); ok && (rest == "" || rest[0] == '/') {
		name = "etc" + rest
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		e = Directory(name)
	case unix.S_IFREG:
		e = copied(name, path)
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		if err != nil {
			return e, err
		}
		e = Symlink(name, target)
	default:
		return e, fmt.Errorf("%s is no file, directory or symbolic link", path)
	}
	e.Mode, e.Uid, e.Gid = int64(st.Mode&0o7777), int(st.Uid), int(st.Gid)
	e.PAXRecords, err = xattrRecords(path)
	return e, err
}

// xattrRecords returns a file's extended attributes as PAX records, without SELinux labels.
func xattrRecords(path string) (map[string]string, error) {
	list := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, list)
	if err != nil {
		return nil, &fs.PathError{Op: "llistxattr", Path: path, Err: err}
	}
	records := map[string]string{}
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if name == "" || name == "security.selinux" {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return nil, &fs.PathError{Op: "lgetxattr " + name, Path: path, Err: err}
		}
		records["SCHILY.xattr."+name] = string(value[:n])
	}
	return records, nil
}

// Spread distributes entries over n layers. As in plain images of common builders, each layer has
// the parent directories of its files. The first layer also has all other directories.
func Spread(entries []Entry, n int) []Option {
	var opts []Option
	for _, layer := range SpreadEntries(entries, n) {
		opts = append(opts, WithDerived(layer...))
	}
	return opts
}

// SpreadEntries returns the entries of each layer of Spread.
func SpreadEntries(entries []Entry, n int) [][]Entry {
	dirs, others := directories(entries)
	var layers [][]Entry
	for i := range n {
		have := map[string]bool{}
		var layer []Entry
		if i == 0 {
			for _, name := range slices.Sorted(maps.Keys(dirs)) {
				layer, have[name] = append(layer, dirs[name]), true
			}
		}
		layer = append(layer, withDirectories(others[len(others)*i/n:len(others)*(i+1)/n], dirs, have)...)
		layers = append(layers, layer)
	}
	return layers
}

// Divide distributes entries over n layers; layerOf returns the layer of an entry, from 0. Each
// layer has the parent directories of its files. Entries for which ok is false are left out.
func Divide(entries []Entry, n int, layerOf func(name string) (layer int, ok bool)) []Option {
	dirs, others := directories(entries)
	parts := make([][]Entry, n)
	for _, e := range others {
		if layer, ok := layerOf(e.Name); ok {
			parts[layer] = append(parts[layer], e)
		}
	}
	var layers []Option
	for _, part := range parts {
		layers = append(layers, WithDerived(withDirectories(part, dirs, map[string]bool{})...))
	}
	return layers
}

// directories separates the directories of a tree, by name, from all other entries.
func directories(entries []Entry) (dirs map[string]Entry, others []Entry) {
	dirs = map[string]Entry{}
	for _, e := range entries {
		if e.Typeflag == tar.TypeDir {
			dirs[strings.TrimSuffix(e.Name, "/")] = e
		} else {
			others = append(others, e)
		}
	}
	return dirs, others
}

// withDirectories returns files preceded by those parent directories that a layer does not have
// yet.
func withDirectories(files []Entry, dirs map[string]Entry, have map[string]bool) (layer []Entry) {
	for _, e := range files {
		layer = append(append(layer, above(e.Name, dirs, have)...), e)
	}
	return layer
}

// above returns the parent directories of a file that a layer does not have yet, outermost first.
func above(name string, dirs map[string]Entry, have map[string]bool) (missing []Entry) {
	for dir := path.Dir(name); dir != "." && !have[dir]; dir = path.Dir(dir) {
		have[dir] = true
		missing = append([]Entry{dirs[dir]}, missing...)
	}
	return missing
}
