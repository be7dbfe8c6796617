package registry

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// faults are the failures that are due.
type faults struct {
	mu         sync.Mutex
	failStatus int
	failLeft   int
	cutAfter   int64
	cutLeft    int
	stallLeft  int
}

// FailNext answers the next n authenticated requests with a status, such as 503.
func (r *Registry) FailNext(n, status int) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.failLeft, r.faults.failStatus = n, status
}

// CutBlobs breaks the connection of the next n blob downloads after some bytes.
func (r *Registry) CutBlobs(n int, after int64) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.cutLeft, r.faults.cutAfter = n, after
}

// StallBlobs lets the next n blob downloads never send a byte, until the client gives up.
func (r *Registry) StallBlobs(n int) {
	r.faults.mu.Lock()
	defer r.faults.mu.Unlock()
	r.faults.stallLeft = n
}

// wrap puts the faults that are due before next.
func (f *faults) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		f.mu.Lock()
		blob := req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/blobs/sha256:")
		fail, stall, cut := take(&f.failLeft, true), take(&f.stallLeft, blob), take(&f.cutLeft, blob)
		status, after := f.failStatus, f.cutAfter
		f.mu.Unlock()
		switch {
		case fail:
			writeError(w, status, "UNKNOWN", "fault of the test registry")
			return
		case stall:
			select {
			case <-req.Context().Done():
			case <-time.After(time.Minute):
			}
			return
		case cut:
			w = &cutWriter{ResponseWriter: w, left: after}
		}
		next.ServeHTTP(w, req)
	})
}

// take counts down if the fault applies and is due.
func take(left *int, applies bool) bool {
	if !applies || *left == 0 {
		return false
	}
	*left--
	return true
}

// cutWriter sends some bytes of a body and then breaks the connection.
type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (w *cutWriter) Write(p []byte) (int, error) {
	if int64(len(p)) < w.left {
		w.left -= int64(len(p))
		return w.ResponseWriter.Write(p)
	}
	_, _ = w.ResponseWriter.Write(p[:w.left])
	if flusher, ok := w.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
	panic(http.ErrAbortHandler)
}
