package layer

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"machine-pivot/internal/osimage/imagefault"
)

// Names by which a layer says what of the layers below it is gone (OCI image
// specification, layer.md).
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq" // all that is in the directory
)

// Files is the Content of a layer of which only the regular files below one directory are
// wanted. They are written to a directory of the layer's own.
type Files struct {
	dir, below string
	gone       map[string]bool // paths of layers below this one that it removes
}

// NewFiles writes the files below a directory of the layer, given by its clean relative
// path, to dir. What dir has of an earlier try is removed.
func NewFiles(dir, below string) *Files { return &Files{dir: dir, below: below + "/"} }

// entry implements Content.
func (f *Files) entry(_ context.Context, _ *feeder, header *tar.Header, name string, body io.Reader) error {
	if f.gone == nil {
		f.gone = map[string]bool{}
		if err := errors.Join(os.RemoveAll(f.dir), os.MkdirAll(f.dir, 0o700)); err != nil {
			return blameSink(err)
		}
	}
	if dir, base := path.Split(name); base == opaque {
		f.gone[path.Clean(dir)] = true
		return nil
	} else if removed, ok := strings.CutPrefix(base, whiteout); ok {
		f.gone[path.Join(dir, removed)] = true
		return nil
	}
	relative, wanted := strings.CutPrefix(name, f.below)
	if !wanted || header.Typeflag == tar.TypeDir {
		return nil
	}
	if header.Typeflag != tar.TypeReg {
		return imagefault.Damaged("%s: an entry of type %q: only regular files can be taken from here", shown(name), header.Typeflag)
	}
	return f.write(relative, body)
}

func (f *Files) write(name string, body io.Reader) error {
	path := filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return blameSink(err)
	}
	_ = os.Remove(path) // of two entries of one name the last counts
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return blameSink(err)
	}
	_, err = io.Copy(fileSink{file}, body)
	return errors.Join(err, blameSink(file.Close()))
}

// fileSink tells failures to write from those to read.
type fileSink struct{ to *os.File }

// Write implements io.Writer.
func (s fileSink) Write(p []byte) (int, error) {
	n, err := s.to.Write(p)
	return n, blameSink(err)
}

// ended implements Content.
func (f *Files) ended() error {
	if f.gone == nil { // not a single entry
		return blameSink(os.RemoveAll(f.dir))
	}
	return nil
}

// MoveTo moves the files to a directory, where those of the layers above this one are
// already. What these have too, or have removed, is left out.
func (f *Files) MoveTo(dir string, above ...*Files) error {
	err := filepath.WalkDir(f.dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(f.dir, file)
		if err != nil {
			return err
		}
		for _, layer := range above {
			if layer.removes(name) {
				return nil
			}
		}
		to := filepath.Join(dir, name)
		if _, err := os.Lstat(to); err == nil {
			return nil
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.Rename(file, to)
	})
	if errors.Is(err, fs.ErrNotExist) { // a layer without a single entry
		return nil
	}
	return err
}

// removes reports whether the layer removes a file, or a directory that it is in.
func (f *Files) removes(name string) bool {
	for at := path.Join(f.below, name); at != "."; at = path.Dir(at) {
		if f.gone[at] {
			return true
		}
	}
	return f.gone["."]
}
