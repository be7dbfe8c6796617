package source

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"machine-pivot/internal/retry"
)

// The library makes the requests that open an image. When the registry is overloaded, it does two things that are wrong
// for many machines at once. It repeats a request after exactly the time that the registry asks for, so that all
// refused machines come back together. Its errors do not tell that time to the caller, who comes back too early. This
// file mends both with what httptrace and SystemContext.DockerProxy show of the library's requests.

// spread delays a request that the library repeats by itself. The library does that after "429 Too
// Many Requests", without telling.
type spread struct {
	registry *registry

	mu       sync.Mutex
	answered time.Time // when the last response began
}

// minSpread is the shortest wait of the library that is lengthened. It waits for whole seconds; what is
// shorter is the time that its own work takes.
const minSpread = time.Second

// response notes a response.
func (s *spread) response() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered = time.Now()
}

// request is called before each request. If the library repeats its last request after a wait, that wait is
// lengthened by up to its half, at random.
func (s *spread) request(ctx context.Context) {
	s.mu.Lock()
	answered := s.answered
	s.mu.Unlock()
	waited := time.Since(answered)
	if answered.IsZero() || waited < minSpread || !s.registry.repeats() {
		return
	}
	_ = s.registry.pause(ctx, rand.N(waited/2)) // if the context ends, the request fails
}

// repeats reports whether the library's last request is the same as the one before.
func (r *registry) repeats() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.again
}

// withAsked returns err, of a request of the library, with the time for which the registry wants to be
// left alone. To learn it, it makes the same request again, for the header only. r may be nil.
func (r *registry) withAsked(ctx context.Context, err error) error {
	refused := []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}
	if r == nil || !slices.Contains(refused, statusOf(err)) {
		return err
	}
	response, failed := r.askAgain(ctx)
	if failed != nil {
		return err // as it was
	}
	_ = response.Body.Close()
	if !slices.Contains(refused, response.StatusCode) {
		return err
	}
	return retry.WithAsked(err, response.Header.Get)
}

// askAgain repeats the library's last request with the method HEAD.
func (r *registry) askAgain(ctx context.Context) (*http.Response, error) {
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	if last.Host != r.host {
		return nil, errNotOurs
	}
	request, err := r.request(ctx, http.MethodHead, last)
	if err != nil {
		return nil, err
	}
	return r.client().Do(request)
}
