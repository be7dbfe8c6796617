package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"
)

// download is one try to read a blob. It is cancelled when the source is silent (watch).
type download struct {
	source     types.ImageSource
	generation int // of the source
	from       *registry
	blob       types.BlobInfo
	ctx        context.Context
	watch      *watch
	body       io.ReadCloser // nil until opened
	first      bool          // the blob is read from its start, and nothing has been read yet
}

func (b *blob) newDownload() *download {
	source, generation := b.image.connection.current()
	b.source = source
	from := b.image.connection.registry
	d := &download{source: source, generation: generation, from: from, blob: b.BlobInfo}
	d.ctx, d.watch = b.newWatch()
	return d
}

// whole opens the blob at its start. The library is asked only if the registry's answer is not one
// for our own request: it can get a token, and reads blobs that are not in a registry. For a local image
// it gets no URLs from the manifest, because it would read the blob from there.
func (d *download) whole() (err error) {
	d.first = true
	if d.from == nil {
		d.blob.URLs = nil
	}
	d.watch.during(func() int {
		if d.body, err = d.from.openWhole(d.ctx, d.blob); isForLibrary(err) {
			d.body, _, err = d.source.GetBlob(d.from.observe(d.ctx, d.generation, max(d.blob.Size, maxOpened)), d.blob, none.NoCache)
		}
		return 0
	})
	return err
}

// isForLibrary reports whether the library is to make a request that has failed with err. There was no request, or the
// registry refuses it for a reason that the library handles, and reports in the registry's words.
func isForLibrary(err error) bool {
	if errors.Is(err, errNotOurs) {
		return true
	}
	a, answered := errors.AsType[answer](err)
	return answered && !isTransientStatus(a.status)
}

// part opens the blob at an offset.
func (d *download) part(offset int64) (err error) {
	d.watch.during(func() int {
		d.body, err = d.from.openRange(d.ctx, d.blob, offset)
		return 0
	})
	return err
}

// read reads from the opened body.
func (d *download) read(p []byte) (n int, err error) {
	d.watch.during(func() int {
		n, err = d.body.Read(p)
		return n
	})
	if d.first && n > 0 {
		d.first = false
		if strings.HasPrefix(http.DetectContentType(p[:n]), "text/html") {
			return 0, wrongAnswer("the registry sent a web page instead of the layer")
		}
	}
	return n, err
}

// skip reads n bytes and passes them to note.
func (d *download) skip(n int64, note func([]byte)) error {
	buffer := make([]byte, min(n, 64<<10))
	for left := n; left > 0; {
		got, err := d.read(buffer[:min(left, int64(len(buffer)))])
		note(buffer[:got])
		left -= int64(got)
		if err == io.EOF && left > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil && left > 0 {
			return err
		}
	}
	return nil
}

func (d *download) close() {
	d.watch.stop()
	if d.body != nil {
		_ = d.body.Close() // all data was read, or an error is returned already
	}
}

// truncated is the error for a body that is shorter than the size in the manifest, without an
// error of the connection.
type truncated struct{ got, want int64 }

func (t truncated) Error() string {
	return fmt.Sprintf("it is truncated: it ended after %d of %d bytes", t.got, t.want)
}
