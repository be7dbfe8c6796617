package layer

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
)

// chunkedArchive is the stream that ChunkedPlan.Archive returns.
type chunkedArchive struct {
	plan    *ChunkedPlan
	open    func(ostree.ObjectName) (io.ReadCloser, error)
	fetched io.ReadCloser // the spans of the plan

	mu      sync.Mutex // held during Read
	decoder *zstd.Decoder
	headers chunkedHeaders // nil if all gaps are fetched

	at    int       // the next element
	part  io.Reader // the part that is being read; nil between parts
	count int64     // bytes of the part so far
	ended func() error
	local io.Closer // the object that is being read, or nil
	err   error     // the final error, which may be io.EOF

	diffID string
	sum    hash.Hash
}

// Archive returns the whole decompressed archive of the layer. It ends with io.EOF only if its
// digest is the diff ID ("sha256:…"). Made headers (ChunkedLocation.OfObjects) give an archive with the same
// entries and another digest, which is not compared. fetched has the plan's spans one after the other; open opens
// an object that ReadChunked's find has returned. Close closes fetched, too; it may be called while
// another goroutine is in Read.
func (p *ChunkedPlan) Archive(diffID string, fetched io.ReadCloser, open func(ostree.ObjectName) (io.ReadCloser, error)) (io.ReadCloser, error) {
	a := &chunkedArchive{plan: p, open: open, fetched: fetched, diffID: diffID, sum: sha256.New()}
	var err error
	if a.decoder, err = newFrameDecoder(); err == nil {
		a.headers, err = p.contents.openHeaders()
	}
	if err != nil {
		return nil, errors.Join(damaged("its headers: %w", err), a.Close())
	}
	return a, nil
}

// Close implements io.Closer.
func (a *chunkedArchive) Close() error {
	err := a.fetched.Close() // first, so that a Read in progress returns
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = io.ErrClosedPipe
	if a.local != nil {
		err = errors.Join(err, a.local.Close())
		a.local = nil
	}
	if a.decoder != nil {
		a.decoder.Close()
	}
	if a.headers != nil {
		a.headers.close()
	}
	return err
}

// Read implements io.Reader.
func (a *chunkedArchive) Read(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.err == nil {
		if a.part == nil {
			a.count = 0
			a.err = a.next()
			continue
		}
		n, err := a.part.Read(p)
		a.count += int64(n)
		if err == io.EOF {
			a.part = nil
			err = a.ended()
		}
		a.err = err
		if n > 0 {
			if a.exact() {
				a.sum.Write(p[:n])
			}
			return n, nil
		}
	}
	return 0, a.err
}

// next opens the part that begins with the next element.
func (a *chunkedArchive) next() error {
	n := a.at
	switch {
	case n == len(a.plan.fetch):
		return a.verify()
	case a.plan.fetch[n]:
		return a.fetch()
	case isFile(n):
		return a.reuse(a.plan.contents.files[n/2])
	}
	a.at++
	a.part, a.ended = &chunkedGap{headers: a.headers}, a.endGap
	return nil
}

// exact reports whether all bytes of the archive are the layer's.
func (a *chunkedArchive) exact() bool { return a.headers == nil || a.headers.exact() }

// verify compares the digest of the archive. It returns io.EOF if it is right.
func (a *chunkedArchive) verify() error {
	if got := fmt.Sprintf("sha256:%x", a.sum.Sum(nil)); a.exact() && got != a.diffID {
		return damaged("its content, put together from parts, has the digest %s, not %s as the image's config says", got, a.diffID)
	}
	return io.EOF
}

// endGap checks that a gap is followed by a file if it is not the last one.
func (a *chunkedArchive) endGap() error {
	if a.headers.atEnd() != (a.at == len(a.plan.fetch)) {
		return damaged("%w", errHeaders)
	}
	return nil
}

// chunkedGap is the reader of a gap that is not fetched.
type chunkedGap struct {
	headers chunkedHeaders
	rest    bytes.Reader
}

// Read implements io.Reader.
func (g *chunkedGap) Read(p []byte) (int, error) {
	if g.rest.Len() == 0 {
		segment, err := g.headers.segment()
		if err != nil {
			return 0, damaged("its headers: %w", err)
		}
		if segment == nil {
			return 0, io.EOF
		}
		g.rest.Reset(segment)
	}
	return g.rest.Read(p)
}

// reuse opens the object with the content of a file.
func (a *chunkedArchive) reuse(c chunkedContent) error {
	a.at++
	if a.headers != nil {
		if err := a.headers.take(c.size); err != nil {
			return damaged("%w", err)
		}
	}
	body, err := a.open(c.local)
	if err != nil {
		return localError(c.local, err)
	}
	a.local = body
	a.part = io.LimitReader(body, c.size)
	a.ended = func() error {
		err := a.local.Close()
		a.local = nil
		if err == nil && a.count != c.size {
			err = fmt.Errorf("it has %d bytes, not %d as before", a.count, c.size)
		}
		return localError(c.local, err)
	}
	return nil
}

// localError returns the error for an object of the host that cannot be read; nil stays nil. The
// whole layer does not need the object, so another try may succeed.
func localError(n ostree.ObjectName, err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Unavailable, "cannot take content from object %s: %w", n, err)
}

// fetch opens a run of fetched elements.
func (a *chunkedArchive) fetch() error {
	from, to := a.at, a.plan.runEnd(a.at)
	a.at = to
	span := a.plan.span(from, to)
	if span.From == span.To {
		return a.skip(from, to, 0)
	}
	left := &io.LimitedReader{R: &rangeReader{from: a.fetched}, N: span.To - span.From}
	if err := a.decoder.Reset(left); err != nil {
		return blameContent(left.R, err)
	}
	a.part = decodedFrame{a.decoder, left.R}
	a.ended = func() error { return a.skip(from, to, a.count) }
	return nil
}

// decodedFrame is the decoder of a span.
type decodedFrame struct {
	*zstd.Decoder
	source io.Reader
}

// Read implements io.Reader.
func (d decodedFrame) Read(p []byte) (int, error) {
	n, err := d.Decoder.Read(p)
	return n, blameContent(d.source, err)
}

// rangeReader is a reader that records its error, to distinguish it from an error of the decoder.
type rangeReader struct {
	from   io.Reader
	failed error
}

// Read implements io.Reader.
func (r *rangeReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	switch {
	case err == io.EOF && n > 0:
		return n, nil
	case err == io.EOF:
		err = io.ErrUnexpectedEOF // the reader above knows where the span ends, and does not read further
	}
	if err != nil {
		r.failed = err
	}
	return n, err
}

// blameContent returns the error of decoding a span: that of the source if it has failed, or that of a
// damaged layer. nil and io.EOF stay.
func blameContent(source io.Reader, err error) error {
	if failed := source.(*rangeReader).failed; failed != nil && err != nil {
		return failed
	}
	if err == nil || err == io.EOF {
		return err
	}
	return damaged("cannot decompress: %w", err)
}

// skip passes the elements of a run, which were fetched, also in the headers if there are any. It compares their size
// with the number of bytes decompressed for them.
func (a *chunkedArchive) skip(from, to int, size int64) error {
	if a.headers == nil {
		return nil
	}
	var want int64
	for n := from; n < to; n++ {
		if isFile(n) {
			c := a.plan.contents.files[n/2]
			if err := a.headers.take(c.size); err != nil {
				return damaged("%w", err)
			}
			want += c.size
			continue
		}
		gap, err := skipGap(a.headers)
		if err != nil {
			return damaged("its headers: %w", err)
		}
		if a.headers.atEnd() != (n+1 == len(a.plan.fetch)) {
			return damaged("%w", errHeaders)
		}
		want += gap
	}
	if a.exact() && size != want {
		return damaged("%w: %d bytes at elements %d to %d, not %d", errHeaders, size, from, to, want)
	}
	return nil
}
