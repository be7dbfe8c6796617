package kube_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"machine-pivot/internal/cluster/kube"
)

// TestWatchThatEndsAtOnce: a stream that ends at once, without any error, is not asked for again and again.
func TestWatchThatEndsAtOnce(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"metadata":{"name":"n1"}}}`)
	}))
	defer s.Close()
	client, err := kube.New(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	changed := 0
	(&kube.Cluster{Name: "n1", API: client, Now: time.Now}).Watch(ctx, func() { changed++ })
	if n := asked.Load(); n != 1 {
		t.Errorf("%d streams in 2 seconds, %d changes", n, changed)
	}
}
