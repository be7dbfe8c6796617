package source

import (
	"context"
	"errors"
	"sync"

	"go.podman.io/image/v5/types"
)

// connection holds the library's source of an image, and replaces it when the registry
// refuses a token that it accepted before: the library keeps a token for as long as the
// registry said, which is wrong if the clock of this machine is.
type connection struct {
	dial func(context.Context) (types.ImageSource, error)

	mu   sync.Mutex
	now  types.ImageSource
	past []types.ImageSource // replaced ones, from which others may still read
}

// source is the source to read from.
func (c *connection) source() types.ImageSource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// renew replaces a source whose token is refused, unless another goroutine has done so.
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
	err := c.source().Close()
	for _, source := range c.past {
		err = errors.Join(err, source.Close())
	}
	return err
}
