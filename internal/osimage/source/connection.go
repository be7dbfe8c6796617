package source

import (
	"context"
	"errors"
	"sync"

	"go.podman.io/image/v5/types"
)

// connection holds the library's source of an image, and replaces it when the registry
// refuses a token that it accepted before. The library keeps a token for its stated lifetime,
// which goes wrong if this machine's clock is wrong.
type connection struct {
	dial     func(context.Context) (types.ImageSource, error)
	registry *registry // nil for a local image

	mu   sync.Mutex
	now  types.ImageSource
	past []types.ImageSource // replaced sources, from which other goroutines may still read
}

// source returns the source to read from.
func (c *connection) source() types.ImageSource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// renew replaces a source whose token was refused, unless another goroutine has done so.
func (c *connection) renew(ctx context.Context, refused types.ImageSource) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != refused {
		return nil
	}
	source, err := c.dial(ctx)
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
