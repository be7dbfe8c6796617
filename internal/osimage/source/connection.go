package source

import (
	"context"
	"errors"
	"sync"

	"go.podman.io/image/v5/types"
)

// connection holds the library's source of an image, and replaces it when the registry refuses a token that it accepted
// before. The library keeps a token for its stated lifetime, which is wrong if this machine's clock is wrong.
type connection struct {
	dial     func(ctx context.Context, generation int) (types.ImageSource, error)
	registry *registry // nil for a local image

	mu   sync.Mutex
	now  types.ImageSource
	past []types.ImageSource // replaced sources, from which other goroutines may still read
}

// current returns the source to read from, and its generation: how many sources it has replaced.
func (c *connection) current() (source types.ImageSource, generation int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, len(c.past)
}

// source returns the source to read from.
func (c *connection) source() types.ImageSource {
	source, _ := c.current()
	return source
}

// renew replaces a source with a refused token, unless another goroutine has done so.
func (c *connection) renew(ctx context.Context, refused types.ImageSource) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != refused {
		return nil
	}
	source, err := c.dial(ctx, len(c.past)+1)
	if err == nil {
		c.past, c.now = append(c.past, refused), source
	}
	return err
}

// close closes all sources.
func (c *connection) close() error {
	c.registry.close()
	err := c.source().Close()
	for _, source := range c.past {
		err = errors.Join(err, source.Close())
	}
	return err
}
