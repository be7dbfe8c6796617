package guard_test

import (
	"fmt"
	"net"
	"net/http"
	"testing"

	"machine-pivot/internal/guard"
	"machine-pivot/test/tools/attack"
)

// TestAttacks are attempts of strangers at a listener of health and metrics.
func TestAttacks(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := guard.Server(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))
	defer s.Close()
	go func() { _ = s.Serve(guard.Small(l)) }()
	url := "http://" + l.Addr().String() + "/healthz"
	attack.Listener{Name: "health and metrics", Address: l.Addr().String(), Path: "/healthz", Well: func() error {
		r, err := http.Get(url)
		if err == nil {
			err = r.Body.Close()
		}
		return err
	}}.Try(t)
}
