package source

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/osimage/imageref"
)

// failover reads an image's layers from the endpoint that returned its manifest. If a layer
// fails there, it is read from another endpoint. The digest guarantees that all endpoints
// have the same image.
type failover struct {
	host      *Host
	ref       imageref.Reference // the reference that was passed to Open
	digest    string             // of the manifest, or manifest list, that was found
	endpoints []endpoint
	first     atomic.Int32 // index of the endpoint to try first for a layer

	mu     sync.Mutex
	images []*Image // by endpoint; nil if not open
	failed []error  // by endpoint; why it could not be opened
}

// newFailover returns the failover for an image that was opened at one endpoint, after the
// endpoints before it had failed.
func newFailover(ref imageref.Reference, endpoints []endpoint, image *Image, failed []failure) *failover {
	s := &failover{
		host: image.host, ref: ref, digest: image.Digest, endpoints: endpoints,
		images: make([]*Image, len(endpoints)), failed: make([]error, len(endpoints)),
	}
	s.first.Store(int32(len(failed)))
	s.images[len(failed)] = image
	for n, f := range failed {
		s.failed[n] = f.err
	}
	return s
}

// ReadLayer calls read with the image's nth layer as a stream, compressed as in the registry.
// The stream survives transient failures and ends with io.EOF only if its size and digest
// match the manifest. read must close it.
//
// If the layer from an endpoint is incomplete or damaged, ReadLayer calls read again with the
// layer from the next endpoint. An error of read counts as a failure of the endpoint if its
// kind is Unavailable, Refused or BadInput; if it is final (imagefault.Final), no other one is tried. A limit that was
// reached before the end of the stream is final only if the rest of it shows that it is the layer.
// The error of ReadLayer names all endpoints that were tried.
func (i *Image) ReadLayer(ctx context.Context, n int, meter Meter, read func(stream io.ReadCloser) error) error {
	s, again := i.failover, &rereading{Meter: meter}
	var failed []failure
	first := int(s.first.Load())
	for tried := range s.endpoints {
		at, next := (first+tried)%len(s.endpoints), (first+tried+1)%len(s.endpoints)
		err := s.readAt(ctx, at, n, again, read)
		if err == nil || ctx.Err() != nil || !isEndpointFault(err) {
			return err
		}
		failed = append(failed, failure{s.endpoints[at], err})
		if imagefault.IsFinal(err) || next == first {
			break
		}
		if fault.KindOf(err).Transient() { // otherwise the endpoint may still have other layers
			s.first.CompareAndSwap(int32(at), int32(next))
		}
		s.host.note("layer %s: %s does not serve it completely, trying %s: %v",
			i.Layers[n].Digest, s.endpoints[at].ref.Name(), s.endpoints[next].ref.Name(), err)
	}
	return allFailed(s.ref, len(s.endpoints), failed)
}

// isEndpointFault reports whether an error is one of the endpoint, the image or the layer's Content.
func isEndpointFault(err error) bool {
	return slices.Contains([]fault.Kind{fault.Unavailable, fault.Refused, fault.BadInput}, fault.KindOf(err))
}

// readAt reads a layer from one endpoint.
func (s *failover) readAt(ctx context.Context, at, n int, meter *rereading, read func(io.ReadCloser) error) error {
	image, err := s.image(ctx, at)
	if err != nil {
		return err
	}
	meter.at = 0
	stream := image.openBlob(ctx, n, meter)
	err = read(stream)
	if len(s.endpoints) > 1 && isLimit(err) {
		if other := stream.verifyRest(ctx); other != nil { // these were not the layer's bytes
			return fault.New(fault.KindOf(other), "%w (after: %v)", other, err).WithHint("%s", fault.HintOf(other))
		}
	}
	return err
}

// isLimit reports whether an error is that of a limit of the import. It is final only for the layer's own bytes: the
// stream verifies their digest at its end.
func isLimit(err error) bool { return imagefault.IsFinal(err) && fault.KindOf(err) == fault.BadInput }

// image returns the image at an endpoint. The first call opens it there by its digest, and
// checks it against the signature policy.
func (s *failover) image(ctx context.Context, n int) (*Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.images[n] == nil && s.failed[n] == nil {
		at := s.endpoints[n]
		at.ref = at.ref.Pinned(s.digest)
		image, err := s.host.openAt(ctx, at, s.ref)
		if err != nil && ctx.Err() != nil {
			return nil, err // not a failure of the endpoint
		}
		s.images[n], s.failed[n] = image, err
	}
	return s.images[n], s.failed[n]
}

// close ends all connections.
func (s *failover) close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, image := range s.images {
		if image != nil {
			err = errors.Join(err, image.connection.close())
		}
	}
	return err
}

// rereading is the Meter of a layer that is read from several endpoints in turn. Bytes that
// were received from an earlier endpoint too are counted as fetched again.
type rereading struct {
	Meter
	at, most int64 // bytes received in this attempt, and in the longest
}

// Fetched implements Meter.
func (r *rereading) Fetched(n int) {
	again := min(int64(n), r.most-r.at)
	r.at += int64(n)
	r.most = max(r.most, r.at)
	if again > 0 {
		r.Meter.Again(int(again))
	}
	r.Meter.Fetched(n - int(again))
}
