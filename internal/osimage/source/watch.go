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

// watch gives up on a source that is silent, or as good as silent: it cancels a
// context when patience runs out. Waiting for the source uses patience up, and
// each byte gives 1/minRate seconds of it back; time in which nobody waits does
// not count. The library has no such limit, and a registry that accepts a
// connection and says nothing would hold us forever.
type watch struct {
	patience time.Duration
	cancel   context.CancelCauseFunc
	soon     time.Duration // how long an operation may take before that is said
	say      func()

	mu     sync.Mutex
	quiet  *time.Timer   // until it is said
	timer  *time.Timer   // of the operation under way, else nil
	start  time.Time     // of that operation
	waited time.Duration // before it, less what was given back
	got    int           // bytes since patience was last whole
}

// newWatch returns the context that the watch cancels; stop must be called in the end.
// say is called when an operation takes longer than soon, by another goroutine.
func newWatch(ctx context.Context, patience, soon time.Duration, say func()) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{patience: patience, cancel: cancel, soon: soon, say: say}
	// An answer is a sign of life even if it is not what we wait for: the library
	// obeys "429 Too Many Requests" by waiting, and follows redirects.
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: w.alive}), w
}

// during runs an operation under watch. It says how many bytes it got.
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

// alive restores patience in the midst of an operation.
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

// stop ends the context: what is under way returns.
func (w *watch) stop() { w.cancel(nil) }
