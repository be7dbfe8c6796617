package layer

import (
	"archive/tar"
	"context"
	"io"
	"path"
	"strings"

	"machine-pivot/internal/osimage/imagefault"
)

// FileSink receives the files of one layer. It is used by one goroutine at a time. Names are
// clean relative paths.
type FileSink interface {
	// CreateFile creates a file and returns a writer for its content. If a name occurs twice,
	// the last file counts.
	CreateFile(name string) (io.WriteCloser, error)
	// Remove removes a file, or everything in a directory, that lower layers have; "." is
	// everything.
	Remove(name string) error
}

// Files is the Content that extracts the regular files below one directory of a layer.
type Files struct {
	sink  FileSink
	below string
}

// NewFiles returns a Content that puts the files below a directory of the layer, given as a
// clean relative path, into a sink.
func NewFiles(sink FileSink, below string) *Files { return &Files{sink, below} }

// entry implements Content.
func (f *Files) entry(_ context.Context, _ *feeder, header *tar.Header, name string, body io.Reader) error {
	dir, base := path.Split(name)
	if base == opaque {
		return f.remove(path.Clean(dir))
	}
	if removed, ok := strings.CutPrefix(base, whiteout); ok {
		return f.remove(path.Join(dir, removed))
	}
	name, wanted := strings.CutPrefix(name, f.below+"/")
	switch {
	case !wanted, header.Typeflag == tar.TypeDir:
		return nil
	case header.Typeflag != tar.TypeReg:
		return imagefault.Misbuilt("%s: an entry of type %q: only regular files can be taken from here", shown(name), header.Typeflag)
	}
	return f.write(name, body)
}

func (f *Files) write(name string, body io.Reader) error {
	file, err := f.sink.CreateFile(name)
	if err != nil {
		return blameFileSink(err)
	}
	_, err = io.Copy(sinkWriter{file}, body)
	if cerr := file.Close(); err == nil {
		err = blameFileSink(cerr)
	}
	return err
}

// blameFileSink is blameSink for a FileSink, which takes the files of a layer as they are: its errors are
// of the machine and of its limits.
func blameFileSink(err error) error { return blameSink(imagefault.Final(err)) }

// sinkWriter marks write errors, to distinguish them from errors of reading the layer.
type sinkWriter struct{ to io.Writer }

// Write implements io.Writer.
func (w sinkWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	return n, blameFileSink(err)
}

// remove passes a removal on to the sink if it affects the directory.
func (f *Files) remove(name string) (err error) {
	if inside, ok := strings.CutPrefix(name, f.below+"/"); ok {
		err = f.sink.Remove(inside)
	} else if name == "." || strings.HasPrefix(f.below+"/", name+"/") {
		err = f.sink.Remove(".")
	}
	return blameFileSink(err)
}

// ended implements Content.
func (f *Files) ended() error { return nil }

// ofObjects implements Content.
func (*Files) ofObjects() bool { return false }
