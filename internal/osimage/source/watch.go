package source

import (
	"context"
	"fmt"
	"net/http/httptrace"
	"sync"
	"time"
)

// minRate is the minimum average rate of a source, in bytes per second. It is far below that of
// any link over which a machine gets its OS image, and above that of a server that only keeps
// a connection open.
const minRate = 1 << 10

// watch cancels a context if a source sends nothing, or less than minRate, for the duration
// patience. The watch adds up the time spent waiting for the source, and subtracts 1/minRate
// seconds for each byte. Time between operations does not count. The library has no such
// limit: it would wait forever for a registry that accepts a connection and sends nothing.
type watch struct {
	patience time.Duration
	cancel   context.CancelCauseFunc
	delay    time.Duration // how long an operation may take before notice is called
	notice   func()

	mu     sync.Mutex
	quiet  *time.Timer   // calls notice
	timer  *time.Timer   // of the current operation, or nil
	start  time.Time     // of the current operation
	waited time.Duration // before the current operation, less the time for received bytes
	got    int           // bytes since waited was last 0
}

// newWatch returns a watch and the context that it cancels. The caller must call stop in the
// end. notice is called in another goroutine when an operation takes longer than delay.
func newWatch(ctx context.Context, patience, delay time.Duration, notice func()) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{patience: patience, cancel: cancel, delay: delay, notice: notice}
	// Any response shows that the registry is alive. One operation may have several: the
	// library follows redirects, and waits after "429 Too Many Requests".
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: w.alive}), w
}

// during watches an operation, which returns how many bytes it received.
func (w *watch) during(operation func() int) {
	w.mu.Lock()
	w.start, w.timer = time.Now(), time.AfterFunc(w.patience-w.waited, w.giveUp)
	w.quiet = time.AfterFunc(w.delay, w.notice)
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

// alive resets the waiting time to 0 during an operation.
func (w *watch) alive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Reset(w.patience)
		w.quiet.Reset(w.delay)
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

// stop cancels the context, which makes a pending operation return.
func (w *watch) stop() { w.cancel(nil) }
