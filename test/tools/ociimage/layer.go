package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/go-digest"
)

// layerOf returns a layer with the files, directories and links of a tree, which belong to root.
func layerOf(tree string, at time.Time) (layer, error) {
	var compressed bytes.Buffer
	sum := sha256.New()
	zipped, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return layer{}, err
	}
	archive := tar.NewWriter(io.MultiWriter(zipped, sum))
	err = filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error { // in lexical order
		if err != nil || path == tree {
			return err
		}
		return add(archive, tree, path, d, at)
	})
	if err = errors.Join(err, archive.Close(), zipped.Close()); err != nil {
		return layer{}, err
	}
	return layer{compressed.Bytes(), digest.NewDigestFromEncoded(digest.SHA256, fmt.Sprintf("%x", sum.Sum(nil)))}, nil
}

// add adds an entry. Its mode depends only on whether it is a program, not on the umask of who made it.
func add(archive *tar.Writer, tree, path string, d fs.DirEntry, at time.Time) error {
	name, err := filepath.Rel(tree, path)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, ModTime: at, Mode: 0o755, Format: tar.FormatPAX}
	switch d.Type() {
	case fs.ModeDir:
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
		return archive.WriteHeader(header)
	case fs.ModeSymlink:
		header.Typeflag, header.Mode = tar.TypeSymlink, 0o777
		if header.Linkname, err = os.Readlink(path); err != nil {
			return err
		}
		return archive.WriteHeader(header)
	case 0:
	default:
		return fmt.Errorf("cannot add %s: it is no file, directory or link", path)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	if header.Typeflag, header.Size = tar.TypeReg, int64(len(content)); info.Mode()&0o111 == 0 {
		header.Mode = 0o644
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = archive.Write(content)
	return err
}
