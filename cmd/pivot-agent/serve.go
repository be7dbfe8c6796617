package main

import (
	"context"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/fault"
)

// serve answers on an address whether the agent lives and is ready, and with its metrics, until the
// server is closed. The address is one of the machine itself: nothing here asks who is asking.
func serve(ctx context.Context, address string, agent *node.Agent) (*http.Server, error) {
	if host, _, err := net.SplitHostPort(address); err != nil || !net.ParseIP(host).IsLoopback() {
		return nil, fault.New(fault.Usage, "cannot listen on %q: it is no address and port of the loopback interface", address).
			WithHint("use 127.0.0.1:PORT or [::1]:PORT; for other machines there is --listen-metrics, with certificates")
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fault.New(fault.Usage, "cannot listen: %w", err).WithHint("choose another address with --listen")
	}
	server := &http.Server{Handler: handler(agent), ReadHeaderTimeout: 10 * time.Second, ErrorLog: errorLog(agent.Log)}
	go func() { _ = server.Serve(listener) }() // which ends when the server is closed
	return server, nil
}

// errorLog returns a log for a server, such as of clients whose certificates are refused. Its lines become lines of the
// program's log.
func errorLog(to *logrus.Logger) *log.Logger { return log.New(lines{to}, "", 0) }

type lines struct{ to *logrus.Logger }

// Write implements io.Writer.
func (l lines) Write(line []byte) (int, error) {
	l.to.WithField("from", "net/http").Warn(strings.TrimSpace(string(line)))
	return len(line), nil
}

func handler(agent *node.Agent) http.Handler {
	mux := http.NewServeMux()
	answer := func(ok func(now time.Time) bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if !ok(time.Now()) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
	}
	mux.HandleFunc("GET /healthz", answer(agent.Metrics.Alive))
	mux.HandleFunc("GET /readyz", answer(agent.Metrics.Ready))
	mux.HandleFunc("GET /metrics", metricsOf(agent.Metrics))
	return mux
}

func metricsOf(metrics *node.Metrics) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_ = metrics.Write(w) // the reader is gone
	}
}
