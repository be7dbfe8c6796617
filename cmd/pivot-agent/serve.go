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
	"machine-pivot/internal/guard"
)

// listenAgain is the time until an address that somebody else has is tried again.
const listenAgain = 10 * time.Second

// serve answers on an address whether the agent lives and is ready, and with its metrics, until ctx ends. The address is one
// of the machine itself: nothing here asks who is asking.
// What only shows the state never ends the agent's work. Any user can take the address first, or all connections that there
// may be. So nobody kills the agent because it does not answer.
func serve(ctx context.Context, address string, agent *node.Agent) error {
	if host, _, err := net.SplitHostPort(address); err != nil || !net.ParseIP(host).IsLoopback() {
		return fault.New(fault.Usage, "cannot listen on %q: it is no address and port of the loopback interface", address).
			WithHint("use 127.0.0.1:PORT or [::1]:PORT; for other machines there is --listen-metrics, with certificates")
	}
	server := guard.Server(handler(agent))
	server.ErrorLog = errorLog(agent.Log)
	context.AfterFunc(ctx, func() { _ = server.Close() })
	listen(ctx, address, "--listen", server, agent.Log, guard.Small)
	return nil
}

// listen serves at an address, within limits, until the server is closed. It does not wait for an address that somebody else
// has: it tries again until that is free.
func listen(ctx context.Context, address, flag string, server *http.Server, log *logrus.Logger, limited func(net.Listener) net.Listener) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err == nil {
		server.Addr = listener.Addr().String()
	} else {
		log.WithError(err).Warnf("health and metrics are not served while somebody else has the address; choose another one with %s", flag)
	}
	go func() {
		for again := time.NewTicker(listenAgain); err != nil; {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
			listener, err = new(net.ListenConfig).Listen(ctx, "tcp", address)
		}
		_ = server.Serve(limited(listener)) // until the server is closed
	}()
}

// errorLog returns a log for a server, such as of clients with refused certificates. Its lines become lines of the
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
