package osimage

import (
	"context"
	"errors"
	"fmt"
	"io"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/osimage/layer"
)

// maxLayers is how many layers are fetched at once. Package layer decompresses half as many: the
// others are requested already, so that the round trip of each request is over when its turn comes.
const maxLayers = 8

// layerReader reads the layers of an open image.
type layerReader struct {
	*Opened
	progress *meter
	parts    *partReader // nil if all layers are fetched whole
}

// layers reads and verifies the image's layers, several at once, except those that are
// present, and sets their refs in have if only parts were fetched. start returns the Content that takes the entries of the nth layer; it is called
// again each time the layer is read from another endpoint. done may be nil; it is called when
// a layer is complete and verified.
func (i *layerReader) layers(ctx context.Context, have present, start func(n int) layer.Content, done func(ctx context.Context, n int) error) error {
	shared := layer.NewShared() // some 16 MiB, freed when all layers are read
	group, ctx := guard.NewGroup(ctx)
	group.Limit(maxLayers)
	i.progress.layers(have.missing())
	for n := range i.source.Layers {
		if have.layers[n] {
			continue
		}
		group.Start(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			parts, err := i.read(ctx, n, func() layer.Content { return start(n) }, shared)
			if parts {
				have.refs[n] = partRef(i.source.Layers[n])
			}
			if err == nil {
				i.progress.layer()
			}
			if err == nil && done != nil {
				err = done(ctx, n)
			}
			return i.layerError(n, err)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	i.progress.writing()
	return nil
}

// read reads the nth layer: by parts if possible, or whole. parts reports whether it has read it by parts.
func (i *layerReader) read(ctx context.Context, n int, content func() layer.Content, shared *layer.Shared) (parts bool, err error) {
	if done, err := i.parts.read(ctx, n, content, shared); done {
		return err == nil, err
	}
	return false, i.source.ReadLayer(ctx, n, i.progress, func(blob io.ReadCloser) error {
		return writing(layer.Read(ctx, blob, i.source.Layers[n].DiffID, content(), shared))
	})
}

// layerError adds the layer to an error, unless the error is about the whole image.
func (i *layerReader) layerError(n int, err error) error {
	if _, whole := errors.AsType[refusal](err); err == nil || whole {
		return err
	}
	return fmt.Errorf("layer %d of %d, %s: %w", n+1, len(i.Layers), i.Layers[n].Digest, err)
}
