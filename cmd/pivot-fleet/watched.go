package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"machine-pivot/internal/cluster/connect"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
)

// watched is a manager that serves its checks and its metrics itself, within limits: controller-runtime's own servers have
// none of connections, and anybody in the cluster can reach them.
type watched struct {
	manager.Manager
	mu            sync.Mutex
	health, ready map[string]healthz.Checker
}

// watched returns a manager that serves its checks and metrics at the addresses of the flags; "0" is none.
func (f *managerFlags) watched(ctx context.Context, m manager.Manager) (manager.Manager, error) {
	w := &watched{Manager: m, health: map[string]healthz.Checker{"ping": healthz.Ping}, ready: map[string]healthz.Checker{}}
	checks, numbers := http.NewServeMux(), http.NewServeMux()
	w.handle(checks, "/healthz", w.health)
	w.handle(checks, "/readyz", w.ready)
	numbers.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	for _, at := range []struct {
		address, flag string
		handler       http.Handler
	}{{f.health, "--listen-health", checks}, {f.metrics, "--listen-metrics", numbers}} {
		if at.address == "0" {
			continue
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at.address)
		if err != nil {
			return nil, fault.New(fault.Unavailable, "cannot listen: %w", err).WithHint("choose another address with %s", at.flag)
		}
		if err := m.Add(serveSmall(listener, at.handler)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// handle serves checks at a path and below it.
func (w *watched) handle(mux *http.ServeMux, path string, checks map[string]healthz.Checker) {
	answer := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		now := maps.Clone(checks) // checks are added while others are answered
		w.mu.Unlock()
		(&healthz.Handler{Checks: now}).ServeHTTP(rw, r)
	})
	mux.Handle(path, http.StripPrefix(path, answer))
	mux.Handle(path+"/", http.StripPrefix(path, answer))
}

// AddHealthzCheck implements manager.Manager.
func (w *watched) AddHealthzCheck(name string, check healthz.Checker) error {
	return w.add(w.health, name, check)
}

// AddReadyzCheck implements manager.Manager.
func (w *watched) AddReadyzCheck(name string, check healthz.Checker) error {
	return w.add(w.ready, name, check)
}

func (w *watched) add(to map[string]healthz.Checker, name string, check healthz.Checker) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if to[name] != nil {
		return fmt.Errorf("there is a check %q already", name)
	}
	to[name] = check
	return nil
}

// serveSmall serves small requests.
func serveSmall(listener net.Listener, handler http.Handler) connect.EachReplica {
	return func(ctx context.Context) error {
		server := guard.Server(handler)
		stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // what is not answered yet is asked again
		defer stop()
		if err := server.Serve(guard.Small(listener)); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
}
