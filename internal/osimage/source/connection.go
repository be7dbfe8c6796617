package source

import (
	"context"
	"errors"
	"sync"

	"go.podman.io/image/v5/types"
)

// connection is an image's source in the library. It is made anew when the
// registry refuses a token that it took before: the library keeps a token for as
// long as the registry said, by a clock that may be another than this machine's.
type connection struct {
	dial func(context.Context) (types.ImageSource, error)

	mu   sync.Mutex
	now  types.ImageSource
	past []types.ImageSource // may still be read from
}

// source is what to read from now.
func (c *connection) source() types.ImageSource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// renew takes the place of a source that is refused, unless that was done already.
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

// close ends all of it.
func (c *connection) close() error {
	err := c.source().Close()
	for _, source := range c.past {
		err = errors.Join(err, source.Close())
	}
	return err
}
