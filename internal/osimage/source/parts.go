package source

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"go.podman.io/image/v5/types"

	"machine-pivot/internal/fault"
)

// Span is a part of a blob: the bytes from From up to, but not including, To.
type Span struct{ From, To int64 }

// partSupport finds out whether a registry gives several parts of a blob in one response. Some
// answer such a request with the whole blob, so a small blob is requested.
type partSupport struct {
	small types.BlobInfo // the image's config

	mu      sync.Mutex // held while the registry is asked
	known   bool
	several atomic.Bool
}

// ask returns whether the registry gives several parts. The first call calls request, which
// requests parts of a blob.
func (s *partSupport) ask(request func(blob types.BlobInfo, spans []Span) (*response, error)) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known || s.small.Size < 3 {
		return s.several.Load(), nil
	}
	found, err := request(s.small, []Span{{0, 1}, {s.small.Size - 1, s.small.Size}})
	switch {
	case err == nil:
		s.several.Store(found.parts != nil)
		_ = found.body.Close() // nothing in it is needed
	case !refusesSeveral(err):
		return false, err // no answer yet
	}
	s.known = true
	return s.several.Load(), nil
}

// refusesSeveral reports whether an error is an answer to the request for several parts: the whole
// blob, another part, or a permanent error.
func refusesSeveral(err error) bool {
	if errors.Is(err, errNoRanges) || isWrong(err) {
		return true
	}
	switch status := statusOf(err); status {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return 400 <= status && status < 500
	}
}

// NoParts reports whether an error is that of a source that gives no parts of a blob.
func NoParts(err error) bool { return errors.Is(err, errNoRanges) }

// SeveralParts reports whether the registry gives several parts of a blob in one response, as far as
// is known from earlier requests.
func (i *Image) SeveralParts() bool { return i.parts.several.Load() }

// Remote reports whether the image is read from a registry, which may give parts of a blob.
func (i *Image) Remote() bool { return i.connection.registry != nil }

// ReadParts returns the bytes of spans of the nth layer's blob, one after the other. The spans are
// in order and not empty. The first Read requests them, from the endpoint that gave the manifest; no
// other endpoint is tried. After a transient failure the stream continues where it stopped. Its bytes
// are not verified. Errors have a fault.Kind; NoParts tells that of a source that gives no parts.
// Close is like that of ReadLayer's stream.
func (i *Image) ReadParts(ctx context.Context, n int, meter Meter, spans []Span) io.ReadCloser {
	return &parts{stream: newStream(ctx, i, i.blobs[n], meter), left: append([]Span(nil), spans...)}
}

// parts is the stream that ReadParts returns.
type parts struct {
	stream
	left  []Span          // what is to be read yet
	from  *response       // the current try; nil between tries
	watch *watch          // of the current try
	tried context.Context // of the current try
}

// Close implements io.Closer.
func (p *parts) Close() error {
	p.cancel(errClosed)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop()
	return nil
}

// Read implements io.Reader.
func (p *parts) Read(buffer []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n == 0 && p.ended == nil && len(buffer) > 0 {
		if len(p.left) == 0 {
			p.ended = io.EOF
			break
		}
		if n, err = p.next(buffer); err != nil {
			p.ended = p.retry(err)
		}
	}
	if n > 0 {
		return n, nil // an error after these bytes is returned by the next Read
	}
	return 0, p.ended
}

// next reads from the current try, after starting one if there is none.
func (p *parts) next(buffer []byte) (n int, err error) {
	if p.from == nil {
		if err := p.begin(); err != nil {
			return 0, err
		}
	}
	at := &p.left[0]
	p.watch.during(func() int {
		n, err = p.from.Read(buffer[:min(int64(len(buffer)), at.To-at.From)])
		return n
	})
	at.From += int64(n)
	p.tries.fresh += int64(n)
	p.meter.Fetched(n)
	if at.From == at.To {
		p.left = p.left[1:]
		return n, p.nextSpan()
	}
	if err == io.EOF {
		err = wrongAnswer("the registry sent less of the blob than it says")
	}
	if err != nil {
		err = p.classify(p.tried, err, fault.Unavailable)
	}
	return n, err
}

// nextSpan continues to the next span of the response. If it was the last one, the try ends.
func (p *parts) nextSpan() (err error) {
	more := len(p.left) > 0 && p.from.spans > 1
	if !more {
		p.drop()
		return nil
	}
	p.watch.during(func() int { err = p.from.next(p.left[0]); return 0 })
	if err != nil {
		err = p.classify(p.tried, err, fault.Unavailable)
	}
	return err
}

// begin requests what is left, or as much of it as one request may ask for.
func (p *parts) begin() (err error) {
	p.source = p.image.connection.source()
	p.tried, p.watch = p.newWatch()
	p.watch.during(func() int {
		p.from, err = p.image.connection.registry.openParts(p.tried, p.BlobInfo, p.left, &p.image.parts)
		return 0
	})
	if err != nil {
		err = p.classify(p.tried, err, fault.Refused)
	}
	return err
}

// drop ends the current try, if there is one.
func (p *parts) drop() {
	if p.from != nil {
		p.watch.during(func() int { p.from.close(); return 0 })
		p.from = nil
	}
	if p.watch != nil {
		p.watch.stop()
		p.watch = nil
	}
}

// retry ends a try that has failed. It waits for the next one and returns nil, or returns the error
// if there must be none.
func (p *parts) retry(err error) error {
	p.drop()
	if isWrong(err) {
		return err
	}
	return p.again(err, p.left[0].From)
}

// otherPart returns the error for a response with another part of a blob than the requested one.
func otherPart() error {
	return wrongAnswer("the registry sent another part of the blob than the requested one")
}
