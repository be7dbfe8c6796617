package source

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

// directoryFiles are the files below a directory.
type directoryFiles string

func (d directoryFiles) open(name string) (io.ReadCloser, int64, error) {
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
func (d directoryFiles) Close() error { return nil }

// archiveFiles are the files in a tar archive, read from where they are in it.
type archiveFiles struct {
	archive *os.File
	parts   map[string]part
}

// part is a range of bytes.
type part struct{ offset, size int64 }

// errNotTar says that a file does not begin as a tar archive.
var errNotTar = errors.New("it is not a plain tar archive")

// openArchive finds the files in an archive.
func openArchive(name string) (*archiveFiles, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	parts, err := partsOf(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot read %s: %w", name, err), f.Close())
	}
	return &archiveFiles{archive: f, parts: parts}, nil
}

func partsOf(f *os.File) (map[string]part, error) {
	parts := map[string]part{}
	archive := tar.NewReader(f) // seeks over contents
	for first := true; ; first = false {
		header, err := archive.Next()
		switch {
		case first && err != nil:
			return nil, errNotTar
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

func (a *archiveFiles) open(name string) (io.ReadCloser, int64, error) {
	at, ok := a.parts[name]
	if !ok {
		return nil, 0, &fs.PathError{Op: "open", Path: a.archive.Name() + ":" + name, Err: fs.ErrNotExist}
	}
	return io.NopCloser(io.NewSectionReader(a.archive, at.offset, at.size)), at.size, nil
}

// Close implements files.
func (a *archiveFiles) Close() error { return a.archive.Close() }
