package ostree

import (
	"io"

	"machine-pivot/internal/inflate"
)

// inflateContent returns a function that does what h.copyContent does, for a compressed stream.
func (im *Import) inflateContent(h *fileHeader) func(io.Writer, io.Reader) error {
	return func(w io.Writer, r io.Reader) error {
		if h.isLink() {
			return empty(r)
		}
		d, _ := im.inflaters.Get().(*inflate.Decoder)
		if d == nil {
			d = inflate.New()
		}
		defer im.inflaters.Put(d)
		decode := func(w io.Writer) error { return d.Decode(w, r, h.size) }
		if h.size < writeBehindFrom {
			return decode(w)
		}
		return withWriteBehind(w, decode)
	}
}
