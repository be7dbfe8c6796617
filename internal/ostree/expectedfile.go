package ostree

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// AddExpectedFile is AddNewFile for a file that probably is an object of the repository. If the
// object has the same metadata, the content is not written but only compared with the object's
// checksum; if it differs, the error is a CorruptError.
func (im *Import) AddExpectedFile(ctx context.Context, expected Checksum, info FileInfo, body io.Reader) (Checksum, error) {
	h, err := info.header()
	if err != nil {
		return Checksum{}, &InvalidError{err}
	}
	n := ObjectName{expected, File}
	fits, err := im.fits(n, h)
	if err != nil {
		return Checksum{}, err
	}
	if h.isLink() || !fits || !im.repo.hasHeader(n, h) {
		return im.AddNewFile(ctx, info, body)
	}
	sum, source := h.sum(), &trackedStream{from: body}
	if err := h.copyContent(sum, source); err != nil {
		return Checksum{}, source.readError(n, err)
	}
	if got := Checksum(sum.Sum(nil)); got != expected {
		return Checksum{}, corrupt(n, "its content has the checksum %s", got)
	}
	return expected, im.add(n, im.file(n, h), func() (objectState, error) {
		return absent, errors.New("cannot use object " + n.String() + ": it was removed meanwhile")
	})
}

// hasHeader reports whether a file object of the repository has the given size and metadata.
func (r *Repo) hasHeader(n ObjectName, want *fileHeader) bool {
	info, xattrs, err := readInfo(r.objectPath(n))
	if err != nil || info.Size != want.size {
		return false
	}
	if info.Xattrs, err = EncodeXattrs(xattrs); err != nil {
		return false
	}
	has, err := info.header()
	return err == nil && bytes.Equal(has.canonical, want.canonical)
}
