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
		err = b.classify(d.ctx, err, b.image.classifier.fallback())
		d.close()
		return err
	}
	b.from = d
	return nil
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
	return b.again(err, b.offset)
}
