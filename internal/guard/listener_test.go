package guard_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/guard"
)

// send sends the head of a request, and as much of a body as is given, and returns the connection.
func send(t *testing.T, address, head, body string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s", head, body)
	return c
}

// status returns the status that a connection is answered with.
func status(t *testing.T, c net.Conn) int {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode
}

// TestBodies: who stalls holds no more than the room of one machine, and no longer than the time of a body.
func TestBodies(t *testing.T) {
	b := &guard.Bodies{Each: 100, PerAddress: 200, All: 1000, Whole: 500 * time.Millisecond}
	var got []byte
	s := httptest.NewServer(b.First(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = io.ReadAll(r.Body) })))
	defer s.Close()
	address := s.Listener.Addr().String()
	for _, c := range []struct {
		head, body string
		want       int
	}{
		{"Content-Length: 5", "hello", http.StatusOK},
		{"Content-Length: 0", "", http.StatusOK},
		{"Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n", http.StatusLengthRequired},
		{"Content-Length: 101", "", http.StatusRequestEntityTooLarge},
		{"Content-Length: 100", "half", http.StatusRequestTimeout},
	} {
		if is := status(t, send(t, address, c.head, c.body)); is != c.want {
			t.Errorf("%s: %d, want %d", c.head, is, c.want)
		}
	}
	first := send(t, address, "Content-Length: 100", "")
	second := send(t, address, "Content-Length: 100", "")
	third := send(t, address, "Content-Length: 100", strings.Repeat("x", 100))
	if a, b := status(t, first), status(t, second); a != http.StatusRequestTimeout || b != http.StatusRequestTimeout {
		t.Errorf("stalled: %d, %d", a, b)
	}
	// It has waited for the room of the first two, at most until its own time is over.
	if is := status(t, third); is != http.StatusOK && is != http.StatusServiceUnavailable && is != http.StatusRequestTimeout {
		t.Errorf("waiting: %d", is)
	}
	if is := status(t, send(t, address, "Content-Length: 5", "again")); is != http.StatusOK || string(got) != "again" {
		t.Errorf("afterwards: %d, %q", is, got)
	}
}

// TestBodiesOfHTTP2: an API server sends many requests over one connection, and each arrives whole.
func TestBodiesOfHTTP2(t *testing.T) {
	b := &guard.Bodies{Each: 1 << 20, PerAddress: 1 << 20, All: 1 << 20, Whole: time.Minute}
	s := httptest.NewUnstartedServer(b.First(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })))
	s.EnableHTTP2, s.Config.HTTP2 = true, guard.HTTP2()
	s.StartTLS()
	defer s.Close()
	answers := make(chan error)
	for i := range 20 {
		go func() {
			body := strings.Repeat(fmt.Sprint(i%10), 900<<10) // one at a time, and more together than a connection buffers
			r, err := s.Client().Post(s.URL, "text/plain", strings.NewReader(body))
			if err == nil {
				text, _ := io.ReadAll(r.Body)
				if r.Body.Close(); string(text) != body || r.ProtoMajor != 2 {
					err = fmt.Errorf("%d bytes of %d with status %d, HTTP/%d", len(text), len(body), r.StatusCode, r.ProtoMajor)
				}
			}
			answers <- err
		}()
	}
	for range 20 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

// TestSmall: a header of a small request is small, and one machine has only so many connections.
func TestSmall(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := guard.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	}))
	defer s.Close()
	go func() { _ = s.Serve(guard.Small(l)) }()
	address := l.Addr().String()
	if is := status(t, send(t, address, "X: "+strings.Repeat("a", 100<<10), "")); is != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a large header: %d", is)
	}
	if is := status(t, send(t, address, "Content-Length: 5", "hello")); is != http.StatusRequestEntityTooLarge {
		t.Errorf("a body: %d", is)
	}
	reset := 0
	for range 100 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			reset++
			continue
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); err != nil && !strings.Contains(err.Error(), "timeout") {
			reset++
		}
	}
	if reset < 60 {
		t.Errorf("%d of 100 connections of one machine are reset", reset)
	}
}
