package oscontainer

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// entry is a file of a layer. Its content is body, or that of the file source.
type entry struct {
	name, link string
	dir        bool
	body       []byte
	source     string
}

func directory(name string) entry       { return entry{name: name, dir: true} }
func text(name, body string) entry      { return entry{name: name, body: []byte(body)} }
func symlink(name, target string) entry { return entry{name: name, link: target} }

// writeLayer writes a tar archive, compressed little: most of it is objects,
// which are compressed already.
func writeLayer(w io.Writer, prefix string, entries []entry) error {
	gz, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	out := tar.NewWriter(gz)
	for _, e := range entries {
		e.name = prefix + e.name
		if err := e.write(out); err != nil {
			return err
		}
	}
	return errors.Join(out.Close(), gz.Close())
}

func (e entry) write(out *tar.Writer) error {
	header := &tar.Header{
		Name: e.name, Mode: 0o644, Typeflag: tar.TypeReg, Size: int64(len(e.body)),
		ModTime: time.Unix(0, 0).UTC(), Format: tar.FormatGNU,
	}
	body := io.Reader(bytes.NewReader(e.body))
	switch {
	case e.dir:
		header.Typeflag, header.Mode, header.Name = tar.TypeDir, 0o755, e.name+"/"
	case e.link != "":
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, e.link, 0o777
	case e.source != "":
		f, err := os.Open(e.source)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		header.Size, body = info.Size(), f
	}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(out, body)
	return err
}

// repoLayers spreads a repository over n layers: its config and refs are in the
// first, its objects in all of them.
func repoLayers(repo string, n int) ([][]entry, error) {
	objects, err := tree(repo, "objects")
	if err != nil {
		return nil, err
	}
	head := []entry{directory("srv/repo"), {name: "srv/repo/config", source: filepath.Join(repo, "config")}}
	refs, err := tree(repo, "refs")
	if err != nil {
		return nil, err
	}
	head = append(head, refs...)
	layers := make([][]entry, n)
	for i := range n {
		layers[i] = append(head, objects[len(objects)*i/n:len(objects)*(i+1)/n]...)
		head = nil
	}
	return layers, nil
}

// tree lists what is below a directory of the repository, sorted by name.
func tree(repo, dir string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(filepath.Join(repo, dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := "srv/repo/" + strings.TrimPrefix(strings.TrimPrefix(path, repo), "/")
		switch {
		case d.IsDir():
			entries = append(entries, directory(name))
		case d.Type().IsRegular():
			entries = append(entries, entry{name: name, source: path})
		default:
			return fmt.Errorf("%s is neither a file nor a directory", path)
		}
		return nil
	})
	return entries, err
}
