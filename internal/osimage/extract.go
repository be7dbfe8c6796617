package osimage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
	"machine-pivot/internal/osimage/layer"
)

// CheckExtract is an error if Extract would fail because the image is for another machine,
// or for lack of free bytes.
func (o *Opened) CheckExtract(free int64) error {
	err := o.machine.runs(o.stated)
	if err == nil && o.Bytes > free {
		err = fault.New(fault.CannotWrite, "there are %d bytes free, but the image's %d compressed ones need more", free, o.Bytes).
			WithHint("free space on the file system of /var")
	}
	return o.extractError(err)
}

// Extract writes the regular files that the image has below a directory, a relative path,
// into dir, which must be empty. Each layer is verified before any of its files is there.
// An error leaves dir in any state. report, unless nil, is called by one goroutine at a time.
func (o *Opened) Extract(ctx context.Context, below, dir string, report func(Progress)) error {
	return o.extractError(guard.Call(func() error { return o.extract(ctx, below, dir, report) }))
}

func (o *Opened) extractError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot take files from image %s: %w", o.Reference, err)
}

func (o *Opened) extract(ctx context.Context, below, dir string, report func(Progress)) error {
	parts := filepath.Join(dir, ".layers")
	if err := os.Mkdir(parts, 0o700); err != nil {
		return err
	}
	reader := layerReader{o, &meter{report: report, objects: func() int { return 0 }}}
	reader.progress.expect(o.Bytes)
	found := make([]*layer.Files, len(o.Layers))
	err := reader.layers(ctx, present{layers: make([]bool, len(o.Layers))}, func(n int) layer.Content {
		found[n] = layer.NewFiles(filepath.Join(parts, strconv.Itoa(n)), below)
		return found[n]
	}, nil)
	for n, files := range slices.Backward(found) {
		if err == nil {
			err = files.MoveTo(dir, found[n+1:]...)
		}
	}
	if err != nil {
		return err
	}
	reader.progress.finish()
	return os.RemoveAll(parts)
}
