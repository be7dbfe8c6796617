package osimage

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"machine-pivot/fault"
	"machine-pivot/osimage/layer"
)

// maxLayers is how many layers are read at once: enough to keep the processors
// busy while one waits for the network.
const maxLayers = 4

// layers reads the image's layers, several at once, and verifies them; those to
// skip are left out. For each one, start says who takes its entries, and done
// is called when all of it was good.
func (i *importer) layers(ctx context.Context, skip []bool, start func(n int) layer.Content, done func(ctx context.Context, n int) error) error {
	if err := i.prepare(skip); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxLayers)
	for n := range i.source.Layers {
		if skip != nil && skip[n] {
			continue
		}
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			err := i.readLayer(ctx, n, start(n))
			if err == nil && done != nil {
				err = done(ctx, n)
			}
			return i.label(n, err)
		})
	}
	return group.Wait()
}

// prepare adds up what is to be fetched, and refuses, before the first write, what
// cannot fit: objects take at least the room that they have in compressed layers.
func (i *importer) prepare(skip []bool) error {
	need := int64(0)
	for n, l := range i.source.Layers {
		if skip == nil || !skip[n] {
			need += max(l.Size, 0)
		}
	}
	i.progress.total = need
	if room := i.target.Room(); need > room {
		return fault.New(fault.CannotWrite, "the repository has room for %d bytes, but the image's %d compressed ones need more", room, need).
			WithHint("free space on the repository's file system, for example with ostree admin cleanup")
	}
	return nil
}

// readLayer reads one layer to its end and verifies it.
func (i *importer) readLayer(ctx context.Context, n int, c layer.Content) error {
	blob, err := i.source.OpenBlob(ctx, n, i.progress)
	if err != nil {
		return err
	}
	return writing(layer.Read(ctx, blob, i.source.Layers[n].DiffID, c, i.buffers))
}

// label says which layer an error is about.
func (i *importer) label(n int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("layer %d of %d, %s: %w", n+1, len(i.source.Layers), i.source.Layers[n].Digest, err)
}
