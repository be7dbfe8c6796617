package registry

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Limits are those of a busy registry, or of its load balancer.
type Limits struct {
	Bandwidth  int64  // bytes of blobs per second, shared by all transfers; 0 is no limit
	Transfers  int    // number of blobs that are sent at a time; a request for one more gets status 503. 0 is no limit
	RetryAfter string // the header of each response with status 503; "": none
}

// Answered is a request, and what it was answered.
type Answered struct {
	At     time.Time
	Blob   bool // a blob was requested
	Status int  // 200 of a response that was begun, 503 of one that was refused
}

// Limiter applies limits to a registry, lets it fail as a whole, and records all requests.
type Limiter struct {
	limits Limits

	mu       sync.Mutex
	sending  int       // transfers in progress
	free     time.Time // when the bandwidth is free again
	ctx      context.Context
	cut      context.CancelFunc // ends all transfers; nil while the registry is down
	answered []Answered
}

// NewLimiter returns a limiter. Its Fault is to be applied to all requests.
func NewLimiter(limits Limits) *Limiter {
	l := &Limiter{limits: limits}
	l.SetDown(false)
	return l
}

// SetDown makes the registry refuse all requests with status 503 and break all transfers, as after a failure of its
// storage, or serve again.
func (l *Limiter) SetDown(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut != nil {
		l.cut()
		l.cut = nil
	}
	if !down {
		l.ctx, l.cut = context.WithCancel(context.Background())
	}
}

// Answered returns all requests so far, in the order in which they arrived.
func (l *Limiter) Answered() []Answered {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Answered(nil), l.answered...)
}

// Fault returns the fault that applies the limits.
func (l *Limiter) Fault() Fault {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			blob := strings.Contains(r.URL.Path, "/blobs/")
			up, done := l.begin(blob)
			if up == nil {
				if l.limits.RetryAfter != "" {
					w.Header().Set("Retry-After", l.limits.RetryAfter)
				}
				writeError(w, http.StatusServiceUnavailable, "UNAVAILABLE", "too many at a time")
				return
			}
			defer done()
			if blob && r.Method == http.MethodGet {
				w = &limitedBody{ResponseWriter: w, up: up, limiter: l}
			}
			next.ServeHTTP(w, r)
		})
	}
}

// begin records a request. It returns nil if it is refused, otherwise a context that ends when the
// registry fails, and a function to call when the response is sent.
func (l *Limiter) begin(blob bool) (up context.Context, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := Answered{At: time.Now(), Blob: blob, Status: http.StatusOK}
	full := blob && l.limits.Transfers > 0 && l.sending >= l.limits.Transfers
	if l.cut == nil || full {
		a.Status = http.StatusServiceUnavailable
	}
	l.answered = append(l.answered, a)
	if a.Status != http.StatusOK {
		return nil, nil
	}
	if !blob {
		return l.ctx, func() {}
	}
	l.sending++
	return l.ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sending--
	}
}

// reserve returns when n bytes have left: transfers share the bandwidth in the order of their writes.
func (l *Limiter) reserve(n int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limits.Bandwidth <= 0 {
		return time.Time{}
	}
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(n) * time.Second / time.Duration(l.limits.Bandwidth))
	return l.free
}

// limitedBody is the body of a blob.
type limitedBody struct {
	http.ResponseWriter
	up      context.Context
	limiter *Limiter
}

// piece is how many bytes a transfer sends before it is the next one's turn.
const piece = 16 << 10

// Write implements http.ResponseWriter. It breaks the connection if the registry fails meanwhile.
func (b *limitedBody) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		part := p[n:min(len(p), n+piece)]
		sent := time.NewTimer(time.Until(b.limiter.reserve(len(part))))
		select {
		case <-sent.C:
		case <-b.up.Done():
			sent.Stop()
			panic(http.ErrAbortHandler)
		}
		var wrote int
		wrote, err = b.ResponseWriter.Write(part)
		n += wrote
	}
	return n, err
}

// Unwrap is for http.ResponseController.
func (b *limitedBody) Unwrap() http.ResponseWriter { return b.ResponseWriter }
