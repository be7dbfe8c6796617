package oscontainer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Entry is a file of a layer. The header fields that are used are Name, Linkname, Typeflag,
// Mode, Uid, Gid, ModTime (default: 1970) and PAXRecords; names are written unchanged. The
// content is Body or, if Source is set, that file; the size is that of the content.
type Entry struct {
	tar.Header
	Body   []byte
	Source string

	over bool // unused bytes of the header are those of the previous object's header
	raw  bool // Body is a whole archive
}

// Directory returns a directory with mode 0755.
func Directory(name string) Entry {
	return Entry{Header: tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}}
}

// File returns a regular file with mode 0644.
func File(name, body string) Entry {
	return Entry{Header: tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, Body: []byte(body)}
}

// Program returns a regular file with mode 0755.
func Program(name, body string) Entry {
	return Entry{Header: tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755}, Body: []byte(body)}
}

// Symlink returns a symbolic link.
func Symlink(name, target string) Entry {
	return Entry{Header: tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink, Mode: 0o777}}
}

// Archive returns a whole layer that another program wrote. It must be the only entry of its
// layer.
func Archive(tar []byte) Entry { return Entry{Body: tar, raw: true} }

// copied returns a regular file with the content of a file of this machine.
func copied(name, source string) Entry {
	return Entry{Header: tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, Source: source}
}

// content opens the content of the entry and returns its present size.
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
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// rootfs returns the rest of a legacy container besides the repository: a small file system.
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

// repoLayers distributes a repository over n layers: its config and refs are in the first, its
// objects in all of them.
func repoLayers(repo string, n int) ([][]Entry, error) {
	objects, err := tree(repo, "objects")
	if err != nil {
		return nil, err
	}
	refs, err := tree(repo, "refs")
	if err != nil {
		return nil, err
	}
	// libostree opens the directory tmp of a repository even if it only reads.
	head := append([]Entry{Directory("srv/repo"), Directory("srv/repo/tmp"), copied("srv/repo/config", filepath.Join(repo, "config"))}, refs...)
	layers := make([][]Entry, n)
	for i := range n {
		layers[i] = append(head, objects[len(objects)*i/n:len(objects)*(i+1)/n]...)
		head = nil
	}
	return layers, nil
}

// tree returns the entries below a directory of the repository, sorted by name.
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
