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

// Content is what a resource holds inline, decompressed and verified against its
// hash; nil without a source. It fails on a remote resource, and if the content
// has more than limit bytes.
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

// IsRemote reports whether a resource must be fetched from somewhere.
func IsRemote(r types.Resource) bool {
	return r.Source != nil && *r.Source != "" && !strings.HasPrefix(*r.Source, "data:")
}

// Unpack is the content of a resource from the bytes that its source gave:
// decompressed as it says, at most limit bytes, and verified against its hash,
// which covers the decompressed content.
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

// Inline is a resource that holds the content itself, as the machine-config
// server writes it: percent-escaped, which stays readable for text.
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

// verify compares with a hash as Ignition writes it, TYPE-HEX; it covers the decompressed content.
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
	if got != strings.ToLower(want) { // hex digits of either case, as in Ignition
		return fmt.Errorf("its content has the hash %s-%s, not %s", kind, got, hash)
	}
	return nil
}
