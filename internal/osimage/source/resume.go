package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/retry"
)

// Retry says how often the download of a layer is tried again, from the byte
// where it stopped, before the import fails.
type Retry struct {
	retry.Backoff
	Tries int                                        // in a row that bring less than 1 MiB
	Sleep func(context.Context, time.Duration) error // waits, or fails when the context ends
}

// defaultRetry outlasts the restart of a registry: some two and a half minutes.
func defaultRetry() Retry {
	return Retry{Backoff: retry.Backoff{First: time.Second, Cap: 30 * time.Second}, Tries: 10, Sleep: retry.Sleep}
}

const (
	// enough is how many bytes make a try worth it, however it ended. A server
	// that gives one byte each time would else be asked for ever.
	enough = 1 << 20
	// tailSize is how many bytes are read twice, to see that a part of a blob
	// begins where it should.
	tailSize = 64
)

// otherBytes is an answer whose bytes are not those that the registry sent before
// at the same place: it sent another part than was asked for, or another blob.
func otherBytes() error {
	return fault.New(fault.Unavailable, "the registry sent other bytes than before at the same place").
		WithHint("does a proxy or a cache that is damaged stand in front of it?")
}

// reopen begins a try at the byte where the last one stopped: with what is left
// if the source gives parts, else with all of it.
func (b *blob) reopen() error {
	if b.offset > 0 && b.parts {
		err := b.resume()
		if err == nil || fault.KindOf(err).Transient() || statusOf(err) == http.StatusUnauthorized {
			return err
		}
		b.parts = false // whatever else is wrong, the whole blob has it too
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

// resume asks for what is left, and for a little before that to compare.
func (b *blob) resume() error {
	d := b.newDownload()
	err := d.part(b.offset - int64(len(b.tail)))
	// Silence may be the library's, that skips through an answer with all of the blob.
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

// skip reads bytes that were read before, and puts them into again.
func (b *blob) skip(d *download, n int64, again io.Writer) error {
	return b.reading(d.ctx, d.skip(n, func(p []byte) {
		_, _ = again.Write(p) // memory, which takes all
		b.meter.Again(len(p))
	}))
}

// begin makes a download the present one, or ends it.
func (b *blob) begin(d *download, err error) error {
	if err != nil {
		err = b.image.judge.classify(d.ctx, err, b.image.judge.fallback())
		d.close()
		return err
	}
	b.from = d
	return nil
}

// reading classifies an error of a download that was opened, if it is one.
func (b *blob) reading(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	otherwise := fault.BadInput
	if b.image.judge.ref.Remote() {
		otherwise = fault.Unavailable
	}
	return b.image.judge.classify(ctx, err, otherwise)
}

// retry waits for the next try, or returns the error if there is to be none.
func (b *blob) retry(err error) error {
	if short, ok := errors.AsType[truncated](err); ok {
		switch again := short == b.short; {
		case again && !b.parts, !b.image.judge.ref.Remote(): // it is all that the source has
			return imagefault.Damaged("%w", short)
		case again: // unless it is only its parts that end there
			b.parts = false
			return nil
		}
		b.short = short
	}
	if b.ctx.Err() == nil && statusOf(err) == http.StatusUnauthorized && b.denied != b.offset {
		if err = b.renew(); err == nil {
			return nil
		}
	}
	if b.ctx.Err() != nil || !fault.KindOf(err).Transient() {
		return err
	}
	return b.wait(err)
}

// renew gets a new token. That the registry refuses that one too is final.
func (b *blob) renew() error {
	b.image.host.log("layer %s: the registry refuses its token at byte %d of %d; asking for a new one", b.Digest, b.offset, b.Size)
	ctx, cancel := context.WithTimeoutCause(b.ctx, b.image.host.patience(), errSilent)
	defer cancel()
	if err := b.image.connection.renew(ctx, b.source); err != nil {
		return b.image.judge.classify(ctx, err, b.image.judge.fallback())
	}
	b.denied = b.offset
	return nil
}

// wait waits for the next try, or returns the error if there were too many.
func (b *blob) wait(err error) error {
	policy := b.image.host.retry()
	if b.failures++; b.fresh >= enough {
		b.failures = 1
	}
	b.fresh = 0
	if b.failures >= policy.Tries {
		return &fault.Error{Kind: fault.KindOf(err), Hint: fault.HintOf(err),
			Err: fmt.Errorf("gave up after %d tries: %w", b.failures, err)}
	}
	wait := policy.Wait(b.failures)
	b.image.host.log("layer %s: %v; going on at byte %d of %d in %s, try %d of %d", b.Digest, err, b.offset, b.Size, wait.Round(time.Millisecond), b.failures+1, policy.Tries)
	if policy.Sleep(b.ctx, wait) != nil {
		return b.reading(b.ctx, err)
	}
	return nil
}
