package source

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imageref"
)

// failover reads an image's layers from the endpoint that gave its manifest, and those
// that this one does not give whole from the others. The digest guarantees that the image
// is the same at all of them.
type failover struct {
	host      *Host
	ref       imageref.Reference // as it was asked for
	digest    string             // of the manifest, or manifest list, that was found
	endpoints []endpoint
	first     atomic.Int32 // the endpoint to ask first for a layer

	mu     sync.Mutex
	images []*Image // by endpoint; nil if it is not open
	failed []error  // by endpoint: why it cannot be opened, if that is known
}

// newFailover begins with the image as it was opened at one endpoint, after those before
// it had failed.
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

// ReadLayer calls read with the image's nth layer as a stream, compressed as it is in the
// registry. The stream survives transient failures and ends with io.EOF only if size and
// digest are those of the manifest. read must close it.
//
// If an endpoint does not give the layer whole, or gives a damaged one, read is called
// again with the layer from the next endpoint. An error of read counts as the endpoint's
// if its kind is Unavailable, Refused or BadInput. The error of ReadLayer names all
// endpoints that were asked.
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
		if isRejection(err) || next == first {
			break
		}
		if fault.KindOf(err).Transient() { // else the endpoint may still have other layers
			s.first.CompareAndSwap(int32(at), int32(next))
		}
		s.host.note("layer %s: %s does not give it whole, trying %s: %v",
			i.Layers[n].Digest, s.endpoints[at].ref.Name(), s.endpoints[next].ref.Name(), err)
	}
	return allFailed(s.ref, len(s.endpoints), failed)
}

// isEndpointFault reports whether another endpoint may do better after a failure.
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
	return read(image.openBlob(ctx, n, meter))
}

// image is the image at one of its endpoints. The first call opens it there, by its
// digest, and checks it by the signature policy.
func (s *failover) image(ctx context.Context, n int) (*Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.images[n] == nil && s.failed[n] == nil {
		at := s.endpoints[n]
		at.ref = at.ref.Pinned(s.digest)
		image, err := s.host.openAt(ctx, at, s.ref)
		if err != nil && ctx.Err() != nil {
			return nil, err // which is no failure of the endpoint
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

// rereading is the Meter of a layer that is read from several endpoints in turn. Bytes
// that an earlier endpoint gave too count as fetched again.
type rereading struct {
	Meter
	at, most int64 // bytes of this reading, and of the longest
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
