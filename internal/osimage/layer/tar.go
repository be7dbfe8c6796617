package layer

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/ostree"
)

// maxTrailer bounds the padding after the end of a layer's tar stream, in bytes.
const maxTrailer = 16 << 20

// Sink stores objects. It is used by several goroutines at once. *ostree.Import implements it.
type Sink interface {
	AddMetadata(ctx context.Context, name ostree.ObjectName, body io.Reader) error
	AddArchiveFile(ctx context.Context, c ostree.Checksum, body io.Reader) error
	AddFile(ctx context.Context, c ostree.Checksum, info ostree.FileInfo, body io.Reader) error
}

// sinkError is a failure of the sink, not of the layer.
type sinkError struct{ error }

func (e sinkError) Unwrap() error { return e.error }

// blameSink marks an error as one of the sink; nil stays nil.
func blameSink(err error) error {
	if err != nil {
		return sinkError{err}
	}
	return nil
}

// Content takes the entries of one layer: a *Legacy, *Native, *Derived or *Files.
type Content interface {
	// entry stores or ignores an entry of the tar stream. name is the entry's name as a clean
	// relative path.
	entry(ctx context.Context, to *feeder, header *tar.Header, name string, body io.Reader) error
	// ended is called after the last entry, for checks that need the whole layer.
	ended() error
	// ofObjects reports whether all that is taken from the layer are objects, which the sink
	// verifies by their own checksums.
	ofObjects() bool
}

// readTar passes each entry of a layer to c.
func readTar(ctx context.Context, layer io.Reader, shared *Shared, c Content) (err error) {
	group, ctx := guard.NewGroup(ctx)
	to := &feeder{group: group, shared: shared, jobs: make(chan func() error)}
	defer func() { to.uncount(err) }()
	err = guard.Call(func() error { return readEntries(ctx, layer, to, c) })
	to.end()
	// If a goroutine of the group has failed, its error counts, not the cancellation that it caused.
	if failed := group.Wait(); failed != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return failed
	}
	return err
}

func readEntries(ctx context.Context, layer io.Reader, to *feeder, c Content) error {
	counted := &countingReader{from: layer}
	in := tar.NewReader(counted)
	for ctx.Err() == nil {
		header, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := to.countUnpacked(counted.count, contentSize(header)); err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
		if err := c.entry(ctx, to, header, name, in); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// contentSize returns how many bytes an entry's content has when it is read, those of holes included.
func contentSize(header *tar.Header) int64 {
	switch header.Typeflag {
	case tar.TypeLink, tar.TypeSymlink, tar.TypeChar, tar.TypeBlock, tar.TypeDir, tar.TypeFifo:
		return 0 // whatever the header says
	}
	return header.Size
}

// countingReader is a reader that counts bytes.
type countingReader struct {
	from  io.Reader
	count int64
}

// Read implements io.Reader.
func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.count += int64(n)
	return n, err
}
