package oscontainer

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Entry is a file of a layer. Of the header count Name, Linkname, Typeflag,
// Mode, Uid, Gid, ModTime (default: 1970) and PAXRecords; names are written as they
// stand. The size is that of the content: Body, or the file Source.
type Entry struct {
	tar.Header
	Body   []byte
	Source string

	over bool // its header is written over that of the object before it
	raw  bool // Body is a whole archive
}

// Directory, File and Symlink make the entries of an ordinary layer.
func Directory(name string) Entry {
	return Entry{Header: tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}}
}

// File is a regular file.
func File(name, body string) Entry {
	return Entry{Header: tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, Body: []byte(body)}
}

// Symlink is a symbolic link.
func Symlink(name, target string) Entry {
	return Entry{Header: tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink, Mode: 0o777}}
}

// Archive is a whole layer as another program wrote it, the only entry of its layer.
func Archive(tar []byte) Entry { return Entry{Body: tar, raw: true} }

// copied is a regular file with the content of another.
func copied(name, source string) Entry {
	return Entry{Header: tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, Source: source}
}

// content opens what the entry holds. The size is what the file has now.
func (e Entry) content() (body io.ReadCloser, size int64, err error) {
	if e.Source == "" {
		return io.NopCloser(bytes.NewReader(e.Body)), int64(len(e.Body)), nil
	}
	f, err := os.Open(e.Source)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// rootfs is the rest of a legacy container: a small file system, as in the real ones.
func rootfs(version string) []Entry {
	return []Entry{
		Directory("etc"), Directory("usr"), Directory("usr/bin"), Directory("usr/lib"), Directory("srv"),
		File("usr/lib/os-release", "ID=test\nVERSION_ID="+version+"\n"),
		File("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
		File("usr/bin/noop", "#!/bin/sh\n"),
		File("usr/lib/large", strings.Repeat("not an object\n", 10000)),
		Symlink("etc/os-release", "../usr/lib/os-release"),
	}
}

// repoLayers spreads a repository over n layers: its config and refs are in the
// first, its objects in all of them.
func repoLayers(repo string, n int) ([][]Entry, error) {
	objects, err := tree(repo, "objects")
	if err != nil {
		return nil, err
	}
	refs, err := tree(repo, "refs")
	if err != nil {
		return nil, err
	}
	// libostree opens tmp of every repository, be it only to read.
	head := append([]Entry{Directory("srv/repo"), Directory("srv/repo/tmp"), copied("srv/repo/config", filepath.Join(repo, "config"))}, refs...)
	layers := make([][]Entry, n)
	for i := range n {
		layers[i] = append(head, objects[len(objects)*i/n:len(objects)*(i+1)/n]...)
		head = nil
	}
	return layers, nil
}

// tree lists what is below a directory of the repository, sorted by name.
func tree(repo, dir string) ([]Entry, error) {
	var entries []Entry
	err := filepath.WalkDir(filepath.Join(repo, dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := "srv/repo/" + strings.TrimPrefix(strings.TrimPrefix(path, repo), "/")
		switch {
		case d.IsDir():
			entries = append(entries, Directory(name))
		case d.Type().IsRegular():
			entries = append(entries, copied(name, path))
		default:
			return fmt.Errorf("%s is neither a file nor a directory", path)
		}
		return nil
	})
	return entries, err
}
