package vm

import (
	"context"
	"io"

	"machine-pivot/test/tools/buildcache"
)

// cache is a directory of what guests consist of.
type cache struct {
	dir string
	log io.Writer
}

func (c cache) results() buildcache.Cache { return buildcache.Cache{Dir: c.dir, Log: c.log} }

func (c cache) lock(ctx context.Context) (unlock func() error, err error) {
	return c.results().Lock(ctx)
}

func (c cache) entry(name, what string, build func(dir string) error) (string, error) {
	return c.results().Entry(name, what, build)
}

func (c cache) prune(prefix string, keep int) (removed []string, err error) {
	return c.results().Prune(prefix, keep)
}
