package layer

import (
	"archive/tar"
	"context"
	"io"
	"path"
	"strings"

	"machine-pivot/internal/osimage/imagefault"
)

// Names by which a layer says what of the layers below it is gone (OCI image
// specification, layer.md).
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq" // all that is in the directory
)

// FileSink takes the files of one layer, by one goroutine. Names are clean relative paths.
type FileSink interface {
	// CreateFile makes a file that is written next; of two with one name the last counts.
	CreateFile(name string) (io.WriteCloser, error)
	// Remove says that a file, or all that is in a directory, which layers below this one
	// have, is gone; "." is all that they have.
	Remove(name string)
}

// Files is the Content of a layer of which only the regular files below one directory are
// wanted.
type Files struct {
	sink  FileSink
	below string
}

// NewFiles puts the files below a directory of the layer, given by its clean relative path,
// into a sink.
func NewFiles(sink FileSink, below string) *Files { return &Files{sink, below} }

// entry implements Content.
func (f *Files) entry(_ context.Context, _ *feeder, header *tar.Header, name string, body io.Reader) error {
	dir, base := path.Split(name)
	if base == opaque {
		f.remove(path.Clean(dir))
		return nil
	}
	if removed, ok := strings.CutPrefix(base, whiteout); ok {
		f.remove(path.Join(dir, removed))
		return nil
	}
	name, wanted := strings.CutPrefix(name, f.below+"/")
	switch {
	case !wanted, header.Typeflag == tar.TypeDir:
		return nil
	case header.Typeflag != tar.TypeReg:
		return imagefault.Damaged("%s: an entry of type %q: only regular files can be taken from here", shown(name), header.Typeflag)
	}
	return f.write(name, body)
}

func (f *Files) write(name string, body io.Reader) error {
	file, err := f.sink.CreateFile(name)
	if err != nil {
		return blameSink(err)
	}
	_, err = io.Copy(sinkWriter{file}, body)
	if cerr := file.Close(); err == nil {
		err = blameSink(cerr)
	}
	return err
}

// sinkWriter tells failures to write from those to read the layer.
type sinkWriter struct{ to io.Writer }

// Write implements io.Writer.
func (w sinkWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	return n, blameSink(err)
}

// remove passes on what is gone of the directory.
func (f *Files) remove(name string) {
	if inside, ok := strings.CutPrefix(name, f.below+"/"); ok {
		f.sink.Remove(inside)
	} else if name == "." || strings.HasPrefix(f.below+"/", name+"/") {
		f.sink.Remove(".")
	}
}

// ended implements Content.
func (f *Files) ended() error { return nil }
