package osimage

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"

	"machine-pivot/ostree"
)

// Where a legacy image holds its repository.
const (
	objectsDir = "srv/repo/objects/"
	headsDir   = "srv/repo/refs/heads/"
)

// Bounds of what is held in memory: this many objects of this size.
const (
	maxBuffered  = 1 << 20
	maxInFlight  = 8
	maxRefLength = 1 << 10
)

// errObject marks a file in the repository that cannot be taken as an object.
var errObject = errors.New("not an object of an archive repository")

// sink takes objects: an *ostree.Import.
type sink interface {
	AddMetadata(ctx context.Context, name ostree.ObjectName, body io.Reader) error
	AddArchiveFile(ctx context.Context, c ostree.Checksum, body io.Reader) error
}

// sinkError is a failure of the sink, not of the layer.
type sinkError struct{ error }

func (e sinkError) Unwrap() error { return e.error }

// repoTar reads a layer's tar stream and picks the repository's files.
type repoTar struct {
	sink  sink
	heads map[string]string // refs below refs/heads, with their content
	found bool              // an object was seen
}

// read feeds all objects of one layer to the sink, small ones in parallel.
// Objects never change between layers, so a layer above adds and hides nothing.
func (r *repoTar) read(ctx context.Context, layer io.Reader) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxInFlight)
	err := r.readEntries(ctx, group, tar.NewReader(layer))
	// What stopped the others is the reason, not that they were stopped.
	if failed := group.Wait(); failed != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return failed
	}
	return err
}

func (r *repoTar) readEntries(ctx context.Context, group *errgroup.Group, in *tar.Reader) error {
	for ctx.Err() == nil {
		header, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
		if object, ok := strings.CutPrefix(name, objectsDir); ok {
			err = r.object(ctx, group, header, object, in)
		} else if ref, ok := strings.CutPrefix(name, headsDir); ok {
			err = r.head(header, ref, in)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// object hands one object to the sink.
func (r *repoTar) object(ctx context.Context, group *errgroup.Group, header *tar.Header, name string, body io.Reader) error {
	object, archive, err := ostree.ParseLoosePath(name)
	if err != nil || header.Typeflag == tar.TypeDir {
		return nil // not an object: a directory, a whiteout
	}
	if header.Typeflag != tar.TypeReg || object.Type == ostree.File && !archive {
		return fmt.Errorf("/%s%s: %w", objectsDir, name, errObject)
	}
	r.found = true
	if header.Size > maxBuffered {
		return r.add(ctx, object, body)
	}
	content := make([]byte, header.Size)
	if _, err := io.ReadFull(body, content); err != nil {
		return err
	}
	group.Go(func() error { return r.add(ctx, object, bytes.NewReader(content)) })
	return nil
}

func (r *repoTar) add(ctx context.Context, object ostree.ObjectName, body io.Reader) (err error) {
	if object.Type == ostree.File {
		err = r.sink.AddArchiveFile(ctx, object.Checksum, body)
	} else {
		err = r.sink.AddMetadata(ctx, object, body)
	}
	if err != nil {
		return sinkError{err}
	}
	return nil
}

// head notes a ref.
func (r *repoTar) head(header *tar.Header, name string, body io.Reader) error {
	if hidden, ok := strings.CutPrefix(path.Base(name), ".wh."); ok { // a whiteout
		delete(r.heads, path.Join(path.Dir(name), hidden))
		return nil
	}
	if header.Typeflag != tar.TypeReg || header.Size > maxRefLength {
		return nil
	}
	content, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	r.heads[name] = strings.TrimSpace(string(content))
	return nil
}
