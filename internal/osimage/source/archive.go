package source

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"machine-pivot/internal/inflate"
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

// archive is a tar archive. Its files are read in place, unless the archive is compressed.
type archive struct {
	file  *os.File
	parts map[string]part
}

// part is the byte range of a file in the archive.
type part struct{ offset, size int64 }

// indexArchive finds the files in an archive.
func indexArchive(name string) (*archive, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	plain, err := unpacked(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot unpack %s: %w", name, err), f.Close())
	}
	parts, err := partsOf(plain)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot read %s: %w", name, err), plain.Close())
	}
	return &archive{file: plain, parts: parts}, nil
}

// unpacked returns a file, or what a compressed one contains: as a temporary file without a name, which ends with the process.
func unpacked(f *os.File) (*os.File, error) {
	content, compressed, err := decompress(f)
	if err != nil {
		return nil, err
	}
	if !compressed {
		_, err := f.Seek(0, io.SeekStart)
		return f, err
	}
	to, err := os.CreateTemp(cmp.Or(os.Getenv("TMPDIR"), "/var/tmp"), "pivot-image-")
	if err != nil {
		return nil, err
	}
	if err = os.Remove(to.Name()); err == nil {
		_, err = io.Copy(to, content)
	}
	if err == nil {
		_, err = to.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return to, f.Close()
}

// maxWindow limits the memory that zstd may ask for, in bytes. The zstd command has the same limit.
const maxWindow = 128 << 20

// decompress returns the content of a stream, and whether the stream is compressed. Its first bytes say so.
func decompress(from io.Reader) (content io.Reader, compressed bool, err error) {
	in := bufio.NewReader(from)
	head, err := in.Peek(6)
	if err != nil && err != io.EOF {
		return nil, false, err
	}
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b\x08")):
		content, err = inflate.NewGzip(in)
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		content, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		content, err = xz.NewReader(in)
	case bytes.HasPrefix(head, []byte("BZh")):
		content, err = bzip2.NewReader(in), nil
	default:
		return in, false, nil
	}
	return content, true, err
}

// partsOf finds the files in an archive.
func partsOf(f *os.File) (map[string]part, error) {
	parts, links := map[string]part{}, map[string]string{}
	in := tar.NewReader(f) // seeks over contents
	for first := true; ; first = false {
		header, err := in.Next()
		switch {
		case first && err != nil:
			return nil, errors.New("it is not a tar archive")
		case err == io.EOF:
			return linked(parts, links), nil
		case err != nil:
			return nil, err
		}
		name := path.Clean("/" + header.Name)[1:]
		switch header.Typeflag {
		case tar.TypeSymlink:
			links[name] = path.Join(path.Dir(name), header.Linkname)
		case tar.TypeReg:
			offset, err := f.Seek(0, io.SeekCurrent)
			if err != nil {
				return nil, err
			}
			parts[name] = part{offset, header.Size}
		}
	}
}

// linked adds the symbolic links to files of the archive. docker save writes a layer that occurs twice so.
func linked(parts map[string]part, links map[string]string) map[string]part {
	for name, target := range links {
		if of, there := parts[target]; there {
			parts[name] = of
		}
	}
	return parts
}

func (a *archive) open(name string) (io.ReadCloser, int64, error) {
	at, ok := a.parts[path.Clean(name)]
	if !ok {
		return nil, 0, &fs.PathError{Op: "open", Path: a.file.Name() + ":" + name, Err: fs.ErrNotExist}
	}
	return io.NopCloser(io.NewSectionReader(a.file, at.offset, at.size)), at.size, nil
}

// Close implements files.
func (a *archive) Close() error { return a.file.Close() }
