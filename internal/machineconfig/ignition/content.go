package ignition

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"

	"machine-pivot/internal/budget"
)

// Room bounds the contents of a config, in bytes after decompression.
type Room struct {
	each int64          // of one content
	all  *budget.Budget // of all contents together
}

// NewRoom returns a Room for contents of at most each bytes, and of at most all bytes together.
func NewRoom(each, all int64) *Room {
	return &Room{each, budget.New(all, "bytes of decompressed contents")}
}

// Content returns the inline content of a resource, decompressed and verified against its hash;
// nil without a source. It returns an error for a remote resource, and if there is no room for the
// content. A content that is read again takes room again.
func Content(r types.Resource, room *Room) ([]byte, error) {
	if r.Source == nil || *r.Source == "" {
		return nil, nil
	}
	if IsRemote(r) {
		return nil, fmt.Errorf("not implemented: contents from %.100q; only data URLs are", Address(*r.Source))
	}
	url, err := dataurl.DecodeString(*r.Source)
	if err != nil {
		return nil, fmt.Errorf("cannot decode its data URL: %w", err)
	}
	return Unpack(r, url.Data, room)
}

// CheckContent returns the error of Content for a resource of a config that Parse has accepted. Ignition has decoded each
// data URL of such a config, so one that is neither compressed nor has a hash is not decoded once more.
func CheckContent(r types.Resource, room *Room) error {
	compressed := r.Compression != nil && *r.Compression != ""
	if r.Source == nil || IsRemote(r) || compressed || r.Verification.Hash != nil {
		_, err := Content(r, room)
		return err
	}
	return room.fits(decodedSize(*r.Source))
}

// decodedSize returns the size of the content of a valid data URL, or up to two bytes more.
func decodedSize(source string) int64 {
	head, content, _ := strings.Cut(source, ",")
	if strings.HasSuffix(head, ";base64") {
		return int64(len(content)) / 4 * 3
	}
	return int64(len(content) - 2*strings.Count(content, "%"))
}

// fits takes the room for a content of a size.
func (room *Room) fits(size int64) error {
	switch err := room.all.Take(size); {
	case errors.Is(err, budget.ErrExceeded):
		return fmt.Errorf("the config is too large: %w", err)
	case size > room.each:
		return fmt.Errorf("it is larger than %d bytes", room.each)
	}
	return nil
}

// IsRemote reports whether a resource must be fetched.
func IsRemote(r types.Resource) bool {
	return r.Source != nil && *r.Source != "" && !strings.HasPrefix(*r.Source, "data:")
}

// Unpack returns the content of a resource from the bytes of its source: decompressed if the
// resource is compressed, as far as there is room for it, and verified against its hash, which is
// of the decompressed content.
func Unpack(r types.Resource, data []byte, room *Room) ([]byte, error) {
	compressed := r.Compression != nil && *r.Compression == "gzip"
	data, err := room.take(data, compressed)
	if err != nil {
		return nil, err
	}
	if r.Verification.Hash != nil {
		err = verify(data, *r.Verification.Hash)
	}
	return data, err
}

// take returns a content, decompressed if it is compressed, and takes the room for it.
func (room *Room) take(data []byte, compressed bool) (content []byte, err error) {
	if compressed {
		content, err = room.gunzip(data)
	} else {
		content, err = data, room.all.Take(int64(len(data)))
	}
	switch {
	case errors.Is(err, budget.ErrExceeded):
		return nil, fmt.Errorf("the config is too large: %w", err)
	case err != nil:
		return nil, fmt.Errorf("cannot decompress it: %w", err)
	case int64(len(content)) > room.each && compressed:
		return nil, fmt.Errorf("it is larger than %d bytes when decompressed", room.each)
	case int64(len(content)) > room.each:
		return nil, fmt.Errorf("it is larger than %d bytes", room.each)
	}
	return content, nil
}

func (room *Room) gunzip(data []byte) ([]byte, error) {
	if err := room.all.Take(0); err != nil { // no room is left
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return room.all.ReadAll(io.LimitReader(z, room.each+1))
}

// Inline returns a resource with inline content, in the form that the machine-config server
// writes: percent-escaped, so that text stays readable.
func Inline(content []byte) types.Resource {
	source := "data:," + dataurl.Escape(content)
	return types.Resource{Source: &source}
}

// verify checks decompressed content against a hash in Ignition's form, TYPE-HEX.
func verify(data []byte, hash string) error {
	kind, want, _ := strings.Cut(hash, "-")
	var got string
	switch kind {
	case "sha256":
		sum := sha256.Sum256(data)
		got = hex.EncodeToString(sum[:])
	case "sha512":
		sum := sha512.Sum512(data)
		got = hex.EncodeToString(sum[:])
	default:
		return fmt.Errorf("its hash is of the unknown type %q", kind)
	}
	if got != strings.ToLower(want) { // Ignition accepts hex digits in either case
		return fmt.Errorf("its content has the hash %s-%s, not %s", kind, got, hash)
	}
	return nil
}
