package osimage

import (
	"context"
	"fmt"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/printable"
)

// CheckExtract returns an error if Extract would fail because the image is for another
// platform, or needs more than free bytes even without being decompressed. What it needs then is
// known only when it is extracted.
func (o *Opened) CheckExtract(free int64) error {
	err := o.machine.checkRuns(o.stated)
	if err == nil && o.Bytes > free {
		err = fault.New(fault.CannotWrite, "there are %s free, but the image needs more than its compressed size, %s", printable.Size(free, o.Bytes), printable.Size(o.Bytes, free)).
			WithHint("free space on the file system of /var")
	}
	return o.extractError(err)
}

// Extract reads the regular files that each layer of the image has below a directory, given
// as a clean relative path. sink returns the destination for the files of the nth layer; it is
// called again each time the layer is read again from its start. The files may be used only
// if Extract returns nil. report may be nil; it is called by one goroutine at a time.
func (o *Opened) Extract(ctx context.Context, below string, sink func(n int) layer.FileSink, report func(Progress)) error {
	return o.extractError(guard.Call(func() error {
		reader := layerReader{Opened: o, progress: &meter{report: report, objects: func() int { return 0 }}}
		reader.progress.expect(o.Bytes)
		err := reader.layers(ctx, present{layers: make([]bool, len(o.Layers))}, func(n int) layer.Content {
			return layer.NewFiles(sink(n), below)
		}, nil)
		if err == nil {
			reader.progress.finish()
		}
		return err
	}))
}

func (o *Opened) extractError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cannot take files from image %s: %w", o.Reference, err)
}
