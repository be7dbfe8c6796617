package registry

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// body is a response that a fault changes.
type body struct {
	http.ResponseWriter
	req    *http.Request
	edit   edit
	headed bool  // the header was sent
	start  int64 // offset in the blob at which the response begins
	at     int64 // offset in the blob of the next byte
}

// edit is a change of a response by a fault. Each function may be nil.
type edit struct {
	head  func(http.Header)           // called before the header is sent
	write func(b *body, p []byte)     // called instead of sending p
	end   func(w http.ResponseWriter) // called after the last byte
}

func (e edit) fault() Fault {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			b := &body{ResponseWriter: w, req: req, edit: e}
			next.ServeHTTP(b, req)
			if e.end != nil {
				e.end(w)
			}
		})
	}
}

// WriteHeader implements http.ResponseWriter.
func (b *body) WriteHeader(status int) {
	b.headed = true
	if _, err := fmt.Sscanf(b.Header().Get("Content-Range"), "bytes %d-", &b.start); err != nil {
		b.start = 0
	}
	b.at = b.start
	if b.edit.head != nil {
		b.edit.head(b.Header())
	}
	b.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. It ignores errors, such as that the client has gone.
func (b *body) Write(p []byte) (int, error) {
	if !b.headed {
		b.WriteHeader(http.StatusOK)
	}
	if b.edit.write != nil {
		b.edit.write(b, p)
	} else {
		b.send(p)
	}
	b.at += int64(len(p))
	return len(p), nil
}

func (b *body) send(p []byte) { _, _ = b.ResponseWriter.Write(p) }

// deliver sends p and flushes it.
func (b *body) deliver(p []byte) {
	b.send(p)
	_ = http.NewResponseController(b.ResponseWriter).Flush()
}

// CutAt breaks the connection at an offset of the blob.
func CutAt(at int64) Fault {
	return edit{write: upTo(at, func(*body) { panic(http.ErrAbortHandler) })}.fault()
}

// CutAfter breaks the connection after the first n bytes of each response.
func CutAfter(n int64) Fault {
	return edit{write: func(b *body, p []byte) {
		if left := b.start + n - b.at; int64(len(p)) >= left {
			b.deliver(p[:left])
			panic(http.ErrAbortHandler)
		}
		b.send(p)
	}}.fault()
}

// StallAt stops sending at an offset of the blob, until the client gives up.
func StallAt(at int64) Fault {
	return edit{write: upTo(at, func(b *body) { wait(b.req); panic(http.ErrAbortHandler) })}.fault()
}

// EndAt ends the response at an offset of the blob, as if the blob were that short.
func EndAt(at int64) Fault {
	return edit{head: anyLength, write: upTo(at, func(*body) {})}.fault()
}

// upTo sends the bytes before an offset of the blob and then calls then. A response that begins
// after the offset is sent unchanged.
func upTo(at int64, then func(*body)) func(*body, []byte) {
	return func(b *body, p []byte) {
		switch {
		case b.start > at, b.at+int64(len(p)) < at:
			b.send(p)
		case b.at <= at:
			b.deliver(p[:at-b.at])
			then(b)
		}
	}
}

// Drip sends single bytes with a pause after each.
func Drip(pause time.Duration) Fault {
	return edit{write: func(b *body, p []byte) {
		for i := range p {
			b.deliver(p[i : i+1])
			select {
			case <-b.req.Context().Done():
				panic(http.ErrAbortHandler)
			case <-time.After(pause):
			}
		}
	}}.fault()
}

// FlipAt changes the byte at an offset of the blob.
func FlipAt(at int64) Fault {
	return edit{write: func(b *body, p []byte) {
		if i := at - b.at; 0 <= i && i < int64(len(p)) {
			p = bytes.Clone(p)
			p[i] ^= 0x40
		}
		b.send(p)
	}}.fault()
}

// Trail sends more data after the end, without a Content-Length.
func Trail(more string) Fault {
	return edit{head: anyLength, end: func(w http.ResponseWriter) { _, _ = w.Write([]byte(more)) }}.fault()
}

// Length changes the Content-Length of the response by a number of bytes. If it is too short, the
// response is truncated; if it is too long, the connection ends after the data.
func Length(by int64) Fault {
	return edit{
		head: func(header http.Header) {
			if n, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64); err == nil {
				header.Set("Content-Length", strconv.FormatInt(max(0, n+by), 10))
			}
		},
		write: func(b *body, p []byte) {
			n, err := strconv.ParseInt(b.Header().Get("Content-Length"), 10, 64)
			if err != nil {
				n = b.at + int64(len(p))
			}
			b.send(p[:max(0, min(int64(len(p)), b.start+n-b.at))])
		},
	}.fault()
}

func anyLength(header http.Header) { header.Del("Content-Length") }
