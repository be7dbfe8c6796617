package source

import (
	"context"
	"fmt"
	"net/http/httptrace"
	"sync"
	"time"
)

// minRate is the least that a source must deliver on average, in bytes per
// second. It is far below any link over which a machine gets its OS image, and
// above what a server sends that only keeps a connection open.
const minRate = 1 << 10

// watch cancels a context if a source sends nothing, or less than minRate, for as long as
// patience says. The time that is spent waiting for the source is added up; each byte
// takes 1/minRate seconds off. Time in which nobody waits does not count. The library has
// no such limit: a registry that accepts a connection and sends nothing would be waited
// for forever.
type watch struct {
	patience time.Duration
	cancel   context.CancelCauseFunc
	soon     time.Duration // how long an operation may take before that is said
	say      func()

	mu     sync.Mutex
	quiet  *time.Timer   // until it is said
	timer  *time.Timer   // of the operation under way, else nil
	start  time.Time     // of that operation
	waited time.Duration // before that operation, less what bytes took off
	got    int           // bytes since waited was last 0
}

// newWatch returns the context that the watch cancels; stop must be called in the end.
// say is called when an operation takes longer than soon, by another goroutine.
func newWatch(ctx context.Context, patience, soon time.Duration, say func()) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{patience: patience, cancel: cancel, soon: soon, say: say}
	// Any answer shows that the registry is alive: after "429 Too Many Requests" the
	// library waits, and it follows redirects, both within one operation.
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: w.alive}), w
}

// during watches an operation, which returns how many bytes it got.
func (w *watch) during(operation func() int) {
	w.mu.Lock()
	w.start, w.timer = time.Now(), time.AfterFunc(w.patience-w.waited, w.giveUp)
	w.quiet = time.AfterFunc(w.soon, w.say)
	w.mu.Unlock()

	n := operation()

	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.quiet.Stop()
	w.timer = nil
	w.got += n
	w.waited += time.Since(w.start) - time.Duration(n)*time.Second/minRate
	if w.waited <= 0 {
		w.waited, w.got = 0, 0
	}
}

// alive sets the time that was waited to 0 during an operation.
func (w *watch) alive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Reset(w.patience)
		w.quiet.Reset(w.soon)
		w.start, w.waited, w.got = time.Now(), 0, 0
	}
}

func (w *watch) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.got == 0 {
		w.cancel(fmt.Errorf("%w: no data for %s", errSilent, w.patience))
	} else {
		w.cancel(fmt.Errorf("%w: less than %d bytes per second for %s", errSilent, minRate, w.patience))
	}
}

// stop cancels the context, which makes an operation return.
func (w *watch) stop() { w.cancel(nil) }
