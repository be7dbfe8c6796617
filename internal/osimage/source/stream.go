package source

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.podman.io/image/v5/types"

	"machine-pivot/internal/fault"
)

// stream is what the readers of a whole blob and of parts of one have in common: where it comes from, and how often that
// was tried.
type stream struct {
	types.BlobInfo
	image *Image
	meter Meter

	ctx    context.Context // of the whole stream
	cancel context.CancelCauseFunc

	mu      sync.Mutex        // held during Read
	source  types.ImageSource // of the last try
	tries   tries
	denials denials
	ended   error // io.EOF or the final error; nil before that
}

func newStream(ctx context.Context, image *Image, blob types.BlobInfo, meter Meter) stream {
	ctx, cancel := context.WithCancelCause(ctx)
	return stream{BlobInfo: blob, image: image, meter: meter, ctx: ctx, cancel: cancel}
}

// newWatch returns the watch and the context of a try. A silent source is logged.
func (s *stream) newWatch() (context.Context, *watch) {
	host, from := s.image.host, s.image.classifier.ref
	return newWatch(s.ctx, host.maxSilence(), host.noticeDelay(), func() {
		until := time.Now().Add(host.maxSilence() - host.noticeDelay())
		host.note("layer %s: waiting for %s, which has sent nothing for %s; it is given until %s",
			s.Digest, cmp.Or(from.Host(), from.Name()), host.noticeDelay(), until.Format("15:04:05"))
	})
}

// classify classifies an error of a try.
func (s *stream) classify(ctx context.Context, err error, otherwise fault.Kind) error {
	return s.image.classifier.ofPart().classify(ctx, err, otherwise)
}

// reading classifies an error of reading an open download; nil stays nil.
func (s *stream) reading(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	otherwise := fault.BadInput
	if s.image.classifier.ref.Remote() {
		otherwise = fault.Unavailable
	}
	return s.classify(ctx, err, otherwise)
}

// again makes ready for another try after a failure at an offset: it gets a new token, or waits. It returns the error if
// there must not be another try.
func (s *stream) again(err error, offset int64) error {
	if s.ctx.Err() == nil && s.denials.mayRenew(err, offset) {
		if err = s.renew(offset); err == nil {
			return nil
		}
	}
	if s.ctx.Err() != nil || !fault.KindOf(err).Transient() {
		return err
	}
	return s.wait(err, offset)
}

// renew gets a new token. If the registry refuses maxDenials of them at the same offset, the
// failure is final.
func (s *stream) renew(offset int64) error {
	s.image.host.note("layer %s: the registry refuses its token at byte %d of %d; asking for a new one", s.Digest, offset, s.Size)
	ctx, cancel := context.WithTimeoutCause(s.ctx, s.image.host.maxSilence(), errSilent)
	defer cancel()
	if err := s.image.connection.renew(ctx, s.source); err != nil {
		return s.image.classifier.classify(ctx, err, s.image.classifier.fallback())
	}
	s.denials.renewed(offset)
	return nil
}

// wait waits for the next try, or returns the error if there were too many tries.
func (s *stream) wait(err error, offset int64) error {
	policy := s.image.host.retryPolicy()
	wait, next, final := s.tries.failed(policy, s.image.connection.registry, err)
	if final != nil {
		return final
	}
	s.image.host.note("layer %s: %v; going on at byte %d of %d in %s, %s", s.Digest, err, offset, s.Size, wait.Round(time.Millisecond), next)
	if policy.Pause(s.ctx, wait) != nil {
		return s.reading(s.ctx, err)
	}
	return nil
}
