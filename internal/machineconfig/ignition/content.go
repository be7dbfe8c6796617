package ignition

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"
)

// Content returns the inline content of a resource, decompressed and verified against its hash;
// nil without a source. It returns an error for a remote resource, and if the content has more
// than limit bytes.
func Content(r types.Resource, limit int) ([]byte, error) {
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
	return Unpack(r, url.Data, limit)
}

// IsRemote reports whether a resource must be fetched.
func IsRemote(r types.Resource) bool {
	return r.Source != nil && *r.Source != "" && !strings.HasPrefix(*r.Source, "data:")
}

// Unpack returns the content of a resource from the bytes of its source: decompressed if the
// resource is compressed, at most limit bytes, and verified against its hash, which is of the
// decompressed content.
func Unpack(r types.Resource, data []byte, limit int) ([]byte, error) {
	var err error
	if r.Compression != nil && *r.Compression == "gzip" {
		if data, err = gunzip(data, limit); err != nil {
			return nil, err
		}
	}
	if len(data) > limit {
		return nil, fmt.Errorf("it is larger than %d bytes", limit)
	}
	if r.Verification.Hash != nil {
		err = verify(data, *r.Verification.Hash)
	}
	return data, err
}

// Inline returns a resource with inline content, in the form that the machine-config server
// writes: percent-escaped, so that text stays readable.
func Inline(content []byte) types.Resource {
	source := "data:," + dataurl.Escape(content)
	return types.Resource{Source: &source}
}

func gunzip(data []byte, limit int) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("cannot decompress it: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("cannot decompress it: %w", err)
	}
	if len(plain) > limit {
		return nil, fmt.Errorf("it is larger than %d bytes when decompressed", limit)
	}
	return plain, nil
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
