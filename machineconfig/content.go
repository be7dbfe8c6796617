package machineconfig

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"

	"machine-pivot/hostfiles"
)

// maxContent bounds a file's decompressed content, in bytes.
const maxContent = 1 << 20

// file turns an Ignition file into one of the host.
func file(f types.File) (hostfiles.File, error) {
	if len(f.Append) > 0 {
		return hostfiles.File{}, fmt.Errorf("not implemented: append")
	}
	if !isRoot(f.User.ID, f.User.Name) {
		return hostfiles.File{}, fmt.Errorf("not implemented: another user than root")
	}
	if !isRoot(f.Group.ID, f.Group.Name) {
		return hostfiles.File{}, fmt.Errorf("not implemented: another group than root")
	}
	mode := 0o644
	if f.Mode != nil {
		mode = *f.Mode
	}
	if mode < 0 || mode > 0o777 {
		return hostfiles.File{}, fmt.Errorf("mode %s is beyond 0777", "0"+strconv.FormatInt(int64(mode), 8))
	}
	content, err := content(f.Contents)
	return hostfiles.File{Path: f.Path, Mode: fs.FileMode(mode), Content: content}, err
}

// isRoot reports whether an owner is root, which no owner at all is too.
func isRoot(id *int, name *string) bool {
	return (id == nil || *id == 0) && (name == nil || *name == "" || *name == "root")
}

// content is what a file's source holds, decompressed and verified.
func content(r types.Resource) ([]byte, error) {
	if r.Source == nil || *r.Source == "" {
		return nil, nil
	}
	if !strings.HasPrefix(*r.Source, "data:") {
		return nil, fmt.Errorf("not implemented: contents from %s; only data URLs are", quoted(*r.Source))
	}
	url, err := dataurl.DecodeString(*r.Source)
	if err != nil {
		return nil, fmt.Errorf("cannot decode its data URL: %w", err)
	}
	data := url.Data
	if r.Compression != nil && *r.Compression == "gzip" {
		if data, err = gunzip(data); err != nil {
			return nil, err
		}
	}
	if r.Verification.Hash != nil {
		err = verify(data, *r.Verification.Hash)
	}
	return data, err
}

func gunzip(data []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("cannot decompress it: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxContent+1))
	if err != nil {
		return nil, fmt.Errorf("cannot decompress it: %w", err)
	}
	if len(plain) > maxContent {
		return nil, fmt.Errorf("it is larger than %d bytes when decompressed", maxContent)
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

// quoted is text from the input, safe to print and bounded.
func quoted(s string) string {
	if len(s) > 100 {
		s = s[:100] + "…"
	}
	return strconv.Quote(s)
}
