package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
	"machine-pivot/internal/input"
)

// Limits of the webhooks. Everybody in the cluster can reach them, and API servers have no certificate that a cluster
// promises; so nothing here depends on who asks. A review has at most 7 MiB, as controller-runtime reads it.
const (
	maxReview      = 7 << 20
	maxReviews     = 84 << 20 // of all clients together
	maxOfClient    = 28 << 20
	maxOpen        = 256
	maxOpenOfOne   = 64
	maxHeader      = 16 << 10
	reviewLimit    = 10 * time.Second // for a whole review to arrive
	answerLimit    = time.Minute      // for a whole request; an API server waits for 30 s at most
	idleLimit      = 90 * time.Second
	shutdownLimit  = time.Minute
	newestProtocol = "h2"
)

// boundedServer is a server of webhooks with limits.
type boundedServer struct {
	webhook.Server // for what is registered
	address        string
	options        webhook.Options
	started        atomic.Bool
}

// newServer returns a server of webhooks at an address.
func newServer(address string, o webhook.Options) webhook.Server {
	o.WebhookMux = http.NewServeMux()
	return &boundedServer{Server: webhook.NewServer(o), address: address, options: o}
}

// StartedChecker implements webhook.Server.
func (s *boundedServer) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if !s.started.Load() {
			return errors.New("the webhooks do not listen yet")
		}
		return nil
	}
}

// Start implements manager.Runnable.
func (s *boundedServer) Start(ctx context.Context) error {
	settings := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{newestProtocol}}
	for _, set := range s.options.TLSOpts {
		set(settings)
	}
	if settings.GetCertificate == nil {
		cert, key := filepath.Join(s.options.CertDir, "tls.crt"), filepath.Join(s.options.CertDir, "tls.key")
		for _, path := range []string{cert, key} {
			if err := (input.File{Path: path}).Check(); err != nil {
				return fault.New(fault.BadInput, "cannot use the webhooks' certificate: cannot read %s: %w", path, err)
			}
		}
		certificate, err := certwatcher.New(cert, key)
		if err != nil {
			return err
		}
		settings.GetCertificate = certificate.GetCertificate
		go func() { _ = certificate.Start(ctx) }() // it ends with ctx
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fault.New(fault.Unavailable, "cannot listen: %w", err).WithHint("choose another address with --listen-webhooks")
	}
	bodies := &guard.Bodies{Each: maxReview, PerAddress: maxOfClient, All: maxReviews, Whole: reviewLimit}
	server := &http.Server{
		Handler: bodies.First(s.WebhookMux()), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: reviewLimit,
		ReadTimeout: 2 * reviewLimit, WriteTimeout: answerLimit, IdleTimeout: idleLimit, TLSConfig: settings, HTTP2: guard.HTTP2(),
	}
	s.started.Store(true)
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(tls.NewListener(guard.Listener(listener, maxOpen, maxOpenOfOne), settings))
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
	defer cancel()
	if err := server.Shutdown(grace); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
