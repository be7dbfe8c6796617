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

// supply is where an image's layers come from: the place that gave its manifest
// and, for what that one does not give whole, the others. By its digest the image
// is the same in all of them.
type supply struct {
	host   *Host
	ref    imageref.Reference // as it was asked for
	digest string             // what it was found to be
	places []place
	first  atomic.Int32 // the place to ask first for a layer

	mu     sync.Mutex
	opened []*Image // by place; nil if it is not open
	failed []error  // by place: why it cannot be opened, if that is known
}

// newSupply begins with the image as it was opened at one place, those before which had failed.
func newSupply(ref imageref.Reference, places []place, image *Image, failed []failure) *supply {
	s := &supply{
		host: image.host, ref: ref, digest: image.Digest, places: places,
		opened: make([]*Image, len(places)), failed: make([]error, len(places)),
	}
	s.first.Store(int32(len(failed)))
	s.opened[len(failed)] = image
	for n, f := range failed {
		s.failed[n] = f.err
	}
	return s
}

// ReadLayer lets read have the image's nth layer as a stream, compressed as it is
// in the registry. The stream survives transient failures and ends with io.EOF only
// if size and digest are those of the manifest; read closes it.
//
// If a place does not give the layer whole, or what it gives is damaged, read is
// called again, with the layer from the next place that the image may come from.
// Which of the failures of read are the place's is told by their kind: Unavailable,
// Refused and BadInput. An error names all the places that were asked.
func (i *Image) ReadLayer(ctx context.Context, n int, meter Meter, read func(stream io.ReadCloser) error) error {
	s, again := i.supply, &rereading{Meter: meter}
	var failed []failure
	first := int(s.first.Load())
	for tried := range s.places {
		at, next := (first+tried)%len(s.places), (first+tried+1)%len(s.places)
		err := s.readAt(ctx, at, n, again, read)
		if err == nil || ctx.Err() != nil || !isPlaces(err) {
			return err
		}
		failed = append(failed, failure{s.places[at], err})
		if isRejection(err) || next == first {
			break
		}
		if fault.KindOf(err).Transient() { // else it may be right about other layers
			s.first.CompareAndSwap(int32(at), int32(next))
		}
		s.host.log("layer %s: %s does not give it whole, trying %s: %v",
			i.Layers[n].Digest, s.places[at].ref.Name(), s.places[next].ref.Name(), err)
	}
	return noPlace(s.ref, len(s.places), failed)
}

// isPlaces reports whether a failure to read a layer is one of the place it came from.
func isPlaces(err error) bool {
	return slices.Contains([]fault.Kind{fault.Unavailable, fault.Refused, fault.BadInput}, fault.KindOf(err))
}

// readAt reads a layer from one place.
func (s *supply) readAt(ctx context.Context, at, n int, meter *rereading, read func(io.ReadCloser) error) error {
	image, err := s.at(ctx, at)
	if err != nil {
		return err
	}
	meter.at = 0
	return read(image.openBlob(ctx, n, meter))
}

// at is the image at one of its places, opened if it was not yet: its manifest,
// by the digest, and what the signature policy says of it there.
func (s *supply) at(ctx context.Context, n int) (*Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened[n] == nil && s.failed[n] == nil {
		place := s.places[n]
		place.ref = place.ref.Pinned(s.digest)
		image, err := s.host.openAt(ctx, place, s.ref)
		if err != nil && ctx.Err() != nil {
			return nil, err // which says nothing of the place
		}
		s.opened[n], s.failed[n] = image, err
	}
	return s.opened[n], s.failed[n]
}

// close ends all connections.
func (s *supply) close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, image := range s.opened {
		if image != nil {
			err = errors.Join(err, image.connection.close())
		}
	}
	return err
}

// rereading counts the bytes of a layer that is read from one place after the
// other. Those that a place before gave too are fetched once more than necessary.
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
