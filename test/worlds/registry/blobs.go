package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// blobDir stores blobs as files DIR/sha256/HEX. Unlike pkg/registry's disk store it does not read
// each blob twice, and it serves damaged blobs.
type blobDir string

func (d blobDir) path(h v1.Hash) string { return filepath.Join(string(d), h.Algorithm, h.Hex) }

// Stat implements pkg/registry's BlobStatHandler.
func (d blobDir) Stat(_ context.Context, _ string, h v1.Hash) (int64, error) {
	info, err := os.Stat(d.path(h))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, ggcr.ErrNotFound
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Get implements pkg/registry's BlobHandler.
func (d blobDir) Get(_ context.Context, _ string, h v1.Hash) (io.ReadCloser, error) {
	f, err := os.Open(d.path(h))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ggcr.ErrNotFound
	}
	return f, err
}

// Put implements pkg/registry's BlobPutHandler.
func (d blobDir) Put(_ context.Context, _ string, h v1.Hash, body io.ReadCloser) error {
	defer body.Close()
	name := d.path(h)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), "upload-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(tmp, body)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return os.Rename(tmp.Name(), name)
}

// FlipByte changes a byte of a stored blob. A negative offset counts from the end.
func (r *Registry) FlipByte(digest string, offset int64) error {
	h, err := v1.NewHash(digest)
	if err != nil {
		return fmt.Errorf("cannot damage blob %s: %w", digest, err)
	}
	f, err := os.OpenFile(blobDir(r.dir).path(h), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("cannot damage blob: %w", err)
	}
	defer f.Close()
	if offset < 0 {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		offset += info.Size()
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, offset); err != nil {
		return fmt.Errorf("cannot damage blob: %w", err)
	}
	b[0] ^= 0x40
	_, err = f.WriteAt(b, offset)
	return err
}

// completeRange adds the end to "Range: bytes=N-", because pkg/registry requires it.
func (r *Registry) completeRange(req *http.Request) {
	start, open := strings.CutSuffix(req.Header.Get("Range"), "-")
	if !open {
		return
	}
	h, err := v1.NewHash(path.Base(req.URL.Path))
	if err != nil {
		return
	}
	if size, err := blobDir(r.dir).Stat(req.Context(), "", h); err == nil {
		req.Header.Set("Range", fmt.Sprintf("%s-%d", start, size-1))
	}
}
