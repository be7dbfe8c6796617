package ocilayout

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// directory is a layout in a directory.
type directory string

func (d directory) open(name string) (io.ReadCloser, int64, error) {
	f, err := os.Open(filepath.Join(string(d), filepath.FromSlash(name)))
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// Close implements files.
func (d directory) Close() error { return nil }

// archive is a layout in a tar archive. Its files are read in place.
type archive struct {
	file  *os.File
	parts map[string]part
}

// part is the byte range of a file in the archive.
type part struct{ offset, size int64 }

// ErrNotTar means that a file does not start like a tar archive.
var ErrNotTar = errors.New("it is not a plain tar archive")

// indexArchive finds the files in an archive.
func indexArchive(name string) (*archive, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	parts, err := partsOf(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot read %s: %w", name, err), f.Close())
	}
	return &archive{file: f, parts: parts}, nil
}

func partsOf(f *os.File) (map[string]part, error) {
	parts := map[string]part{}
	in := tar.NewReader(f) // seeks over contents
	for first := true; ; first = false {
		header, err := in.Next()
		switch {
		case first && err != nil:
			return nil, ErrNotTar
		case err == io.EOF:
			return parts, nil
		case err != nil:
			return nil, err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		offset, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		parts[path.Clean("/" + header.Name)[1:]] = part{offset, header.Size}
	}
}

func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	at, ok := a.parts[name]
	if !ok {
		return nil, 0, &fs.PathError{Op: "open", Path: a.file.Name() + ":" + name, Err: fs.ErrNotExist}
	}
	return io.NopCloser(io.NewSectionReader(a.file, at.offset, at.size)), at.size, nil
}

// Close implements files.
func (a *archive) Close() error { return a.file.Close() }
