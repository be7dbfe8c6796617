package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
)

// Limits of a layer, in bytes.
const (
	// maxUnpacked bounds a decompressed layer: larger than any system, but small enough
	// that a decompression bomb does not keep the processors busy for hours.
	maxUnpacked = 64 << 30
	maxTrailer  = 16 << 20 // padding after the end of a layer's tar stream
)

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
}

// readTar passes each entry of a layer to c.
func readTar(ctx context.Context, layer io.Reader, shared *Shared, c Content) (err error) {
	group, ctx := guard.NewGroup(ctx)
	to := &feeder{group: group, shared: shared, jobs: make(chan func() error)}
	defer func() { to.uncount(err) }()
	err = guard.Call(func() error { return readEntries(ctx, layer, to, c) })
	close(to.jobs)
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
		if header.Size > maxUnpacked-counted.count {
			return imagefault.Damaged("it unpacks to more than %d GiB", maxUnpacked>>30)
		}
		name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
		if err := c.entry(ctx, to, header, name, in); err != nil {
			return err
		}
	}
	return ctx.Err()
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

// feeder puts the objects of one layer into the sink, and counts them.
type feeder struct {
	group  *guard.Group
	shared *Shared
	jobs   chan func() error // to goroutines of the group that wait for work

	// The share of this layer in the counters of shared.
	kept    int64 // bytes
	objects int64
	names   int64 // bytes
}

// feed calls add with an object's body. A small body is read into memory, and add is
// called in another goroutine; a large body is streamed, and feed waits for add. The type of
// the reader lets add find the maximum size.
func (f *feeder) feed(ctx context.Context, size int64, body io.Reader, add func(io.Reader) error) error {
	if err := f.countObject(); err != nil {
		return err
	}
	if size > maxBuffered {
		return blameSink(add(&io.LimitedReader{R: body, N: size}))
	}
	var buffer []byte
	select {
	case buffer = <-f.shared.buffers:
	case <-ctx.Done():
		return ctx.Err()
	}
	if int64(cap(buffer)) < size {
		buffer = make([]byte, max(size, 64<<10))
	}
	if _, err := io.ReadFull(body, buffer[:size]); err != nil {
		f.shared.buffers <- buffer
		return err
	}
	f.dispatch(func() error {
		defer func() { f.shared.buffers <- buffer }()
		return blameSink(add(bytes.NewReader(buffer[:size])))
	})
	return nil
}

// dispatch gives a job to a waiting goroutine, or starts a new one. Goroutines are reused,
// because a new one for each object would have to grow its stack each time.
func (f *feeder) dispatch(job func() error) {
	select {
	case f.jobs <- job:
	default:
		f.group.Start(func() error {
			for more := true; more; job, more = <-f.jobs {
				if err := job(); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
