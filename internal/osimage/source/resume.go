package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/retry"
)

// defaultRetry is the default policy for resuming the download of a layer at the byte where it
// stopped. Only consecutive tries count that each transfer less than 1 MiB. Twelve of them take
// about two and a half minutes, which outlasts the restart of a registry.
//
// Tries after which the registry asks for patience do not count: it is there, and when many machines
// want the same image, a machine can be refused many times. Bound limits the waits that it asks for
// in a row.
func defaultRetry() retry.Policy {
	return retry.Policy{First: time.Second, Cap: 30 * time.Second, Tries: 12, Bound: 20 * time.Minute}
}

const (
	// minProgress is the number of bytes that a try must transfer to reset the count of
	// failures. A lower limit would retry forever with a server that sends one byte each time.
	minProgress = 1 << 20
	// tailSize is how many bytes before the offset are read again, to check that the part
	// of the blob begins at the requested offset.
	tailSize = 64
)

// otherBytes returns the error for a response with other bytes than the registry sent before at the same offsets: it is
// another part, or another blob.
func otherBytes() error {
	return wrongAnswer("the registry sent other bytes than before at the same place")
}

// reopen starts a try that continues at the byte where the last one stopped. If the source
// supports ranges, it requests the rest of the blob. Otherwise it requests the whole blob and
// skips the bytes before the offset.
func (b *blob) reopen() error {
	if b.offset > 0 && b.parts {
		err := b.resume()
		if err == nil || fault.KindOf(err).Transient() || b.denials.mayRenew(err, b.offset) {
			return err
		}
		b.parts = false // this failure may be due to the range, so try the whole blob
	}
	d := b.newDownload()
	err := d.whole()
	if err == nil {
		again := sha256.New()
		err = b.skip(d, b.offset, again)
		if err == nil && !bytes.Equal(again.Sum(nil), b.sum.Sum(nil)) {
			err = otherBytes()
		}
	}
	return b.begin(d, err)
}

// resume requests the rest of the blob and the tail before it, and compares the tail.
func (b *blob) resume() error {
	d := b.newDownload()
	err := d.part(b.offset - int64(len(b.tail)))
	// If nothing arrives, a proxy may be fetching the whole blob first.
	b.parts = !errors.Is(context.Cause(d.ctx), errSilent)
	if err == nil {
		var again bytes.Buffer
		err = b.skip(d, int64(len(b.tail)), &again)
		if err == nil && !bytes.Equal(again.Bytes(), b.tail) {
			b.parts, err = false, otherBytes()
		}
	}
	return b.begin(d, err)
}

// skip reads n bytes that were read in an earlier try, and writes them to again.
func (b *blob) skip(d *download, n int64, again io.Writer) error {
	return b.reading(d.ctx, d.skip(n, func(p []byte) {
		_, _ = again.Write(p) // a buffer or a hash, which cannot fail
		b.meter.Again(len(p))
	}))
}

// begin makes d the current try, or closes it if err is not nil.
func (b *blob) begin(d *download, err error) error {
	if err != nil {
		err = b.image.classifier.ofPart().classify(d.ctx, err, b.image.classifier.fallback())
		d.close()
		return err
	}
	b.from = d
	return nil
}

// reading classifies an error of reading an open download; nil stays nil.
func (b *blob) reading(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	otherwise := fault.BadInput
	if b.image.classifier.ref.Remote() {
		otherwise = fault.Unavailable
	}
	return b.image.classifier.ofPart().classify(ctx, err, otherwise)
}

// retry waits for the next try and returns nil, or returns the error if there must not be
// another try.
func (b *blob) retry(err error) error {
	if short, ok := errors.AsType[truncated](err); ok {
		switch again := short == b.short; {
		case again && !b.parts, !b.image.classifier.ref.Remote(): // the blob at the source is too short
			return imagefault.Damaged("%w", short)
		case again: // perhaps only ranges of this source end there
			b.parts = false
			return nil
		}
		b.short = short
	}
	if b.ctx.Err() == nil && b.denials.mayRenew(err, b.offset) {
		if err = b.renew(); err == nil {
			return nil
		}
	}
	if b.ctx.Err() != nil || !fault.KindOf(err).Transient() {
		return err
	}
	return b.wait(err)
}

// renew gets a new token. If the registry refuses maxDenials of them at the same offset, the
// failure is final.
func (b *blob) renew() error {
	b.image.host.note("layer %s: the registry refuses its token at byte %d of %d; asking for a new one", b.Digest, b.offset, b.Size)
	ctx, cancel := context.WithTimeoutCause(b.ctx, b.image.host.maxSilence(), errSilent)
	defer cancel()
	if err := b.image.connection.renew(ctx, b.source); err != nil {
		return b.image.classifier.classify(ctx, err, b.image.classifier.fallback())
	}
	b.denials.renewed(b.offset)
	return nil
}

// wait waits for the next try, or returns the error if there were too many tries.
func (b *blob) wait(err error) error {
	policy := b.image.host.retryPolicy()
	wait, next, final := b.tries.failed(policy, b.image.connection.registry, err)
	if final != nil {
		return final
	}
	b.image.host.note("layer %s: %v; going on at byte %d of %d in %s, %s", b.Digest, err, b.offset, b.Size, wait.Round(time.Millisecond), next)
	if policy.Pause(b.ctx, wait) != nil {
		return b.reading(b.ctx, err)
	}
	return nil
}
