package admission

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// readiness is whether the caches have been filled. Until then a webhook gives no answer: an API server treats
// that as a failed call, for which the failure policy of the webhook holds, and not as a refusal.
type readiness struct {
	caches []func(context.Context) bool // each waits for one
	ready  atomic.Bool
}

// wait waits until the caches are filled.
func (r *readiness) wait(ctx context.Context) error {
	for _, wait := range r.caches {
		if !wait(ctx) {
			return nil // the program ends
		}
	}
	r.ready.Store(true)
	return nil
}

// first lets a handler answer once the caches are filled.
func (r *readiness) first(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !r.ready.Load() {
			http.Error(w, "the caches are not filled yet", http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// check is ready when the webhooks answer.
func (r *readiness) check(server healthz.Checker) healthz.Checker {
	return func(req *http.Request) error {
		if !r.ready.Load() {
			return errors.New("the caches are not filled yet")
		}
		return server(req)
	}
}
