package ignition

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"

	"machine-pivot/internal/guard"
)

// MaxContent is the maximum size of the content of a file, in bytes after decompression. It is the same
// from the author's check to the machine, which compares no larger file (package hostfiles).
const MaxContent = 16 << 20

// MaxContents is the maximum size of the contents of all files of a machine's MachineConfig, in bytes after
// decompression. It, too, is the same from the author's check to the machine, which has all of them in memory to compare
// and to apply them. A cluster's MachineConfig has at most 1.5 MiB, in any form.
const MaxContents = MaxContent

// Room bounds the contents of a config, in bytes after decompression.
type Room struct {
	each  int64         // of one content
	all   *guard.Budget // of all contents together
	outer *Room         // which the same contents take, too; nil: none
}

// NewRoom returns a Room for contents of at most each bytes, and of at most all bytes together.
func NewRoom(each, all int64) *Room {
	return &Room{each: each, all: guard.NewBudget(all, "bytes of decompressed contents")}
}

// OfMachine returns the part of a room that is for the contents of one MachineConfig: at most MaxContents.
func (room *Room) OfMachine() *Room {
	of := NewRoom(room.each, MaxContents)
	of.outer = room
	return of
}

// spend takes room for n bytes.
func (room *Room) spend(n int64) error {
	if room.outer != nil {
		if err := room.outer.spend(n); err != nil {
			return err
		}
	}
	return room.all.Take(n)
}

// counted returns a reader that takes the room for what is read.
func (room *Room) counted(from io.Reader) io.Reader {
	if room.outer != nil {
		from = room.outer.counted(from)
	}
	return room.all.Reader(from)
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

// CheckContent returns the error of Content for a resource of a config that Parse has accepted. No content is held: many
// small sources may decompress to large ones. Ignition has decoded each data URL of such a config, so one that is neither
// compressed nor has a hash is not decoded once more.
func CheckContent(r types.Resource, room *Room) error {
	if r.Source == nil || *r.Source == "" || IsRemote(r) || !isCompressed(r) && r.Verification.Hash != nil {
		_, err := Content(r, room)
		return err
	}
	if !isCompressed(r) {
		size := decodedSize(*r.Source)
		return room.check(size, room.spend(size), false)
	}
	url, err := dataurl.DecodeString(*r.Source)
	if err != nil {
		return fmt.Errorf("cannot decode its data URL: %w", err)
	}
	sum := newVerifier(r.Verification.Hash)
	size, err := room.gunzip(sum, url.Data)
	if err := room.check(size, err, true); err != nil {
		return err
	}
	return sum.verify()
}

// decodedSize returns the size of the content of a valid data URL, or up to two bytes more.
func decodedSize(source string) int64 {
	head, content, _ := strings.Cut(source, ",")
	if strings.HasSuffix(head, ";base64") {
		return int64(len(content)) / 4 * 3
	}
	return int64(len(content) - 2*strings.Count(content, "%"))
}

// IsRemote reports whether a resource must be fetched.
func IsRemote(r types.Resource) bool {
	return r.Source != nil && *r.Source != "" && !strings.HasPrefix(*r.Source, "data:")
}

// isCompressed reports whether the source of a resource is compressed. gzip is the only form that Ignition knows.
func isCompressed(r types.Resource) bool { return r.Compression != nil && *r.Compression == "gzip" }

// Unpack returns the content of a resource from the bytes of its source: decompressed, if it is compressed and there is
// room, and then verified against the resource's hash.
func Unpack(r types.Resource, data []byte, room *Room) ([]byte, error) {
	data, err := room.take(data, isCompressed(r))
	if err != nil {
		return nil, err
	}
	sum := newVerifier(r.Verification.Hash)
	_, _ = sum.Write(data)
	return data, sum.verify()
}

// take returns a content, decompressed if it is compressed, and takes the room for it.
func (room *Room) take(data []byte, compressed bool) ([]byte, error) {
	if !compressed {
		return data, room.check(int64(len(data)), room.spend(int64(len(data))), false)
	}
	var content bytes.Buffer
	size, err := room.gunzip(&content, data)
	return content.Bytes(), room.check(size, err, true)
}

// check returns the error for a content of a size, or of as much as was read before err.
func (room *Room) check(size int64, err error, compressed bool) error {
	switch {
	case errors.Is(err, guard.ErrTooMuch):
		return fmt.Errorf("the config is too large: %w", err)
	case err != nil:
		return fmt.Errorf("cannot decompress it: %w", err)
	case size > room.each && compressed:
		return fmt.Errorf("it is larger than %d bytes when decompressed", room.each)
	case size > room.each:
		return fmt.Errorf("it is larger than %d bytes", room.each)
	}
	return nil
}

// gunzip writes what data decompresses to, takes the room for it, and returns its size, which is at most one byte above
// that of the largest content.
func (room *Room) gunzip(to io.Writer, data []byte) (int64, error) {
	if err := room.spend(0); err != nil { // no room is left
		return 0, err
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	return io.Copy(to, room.counted(io.LimitReader(z, room.each+1)))
}

// Inline returns a resource with inline content, in the form that the machine-config server
// writes: percent-escaped, so that text stays readable.
func Inline(content []byte) types.Resource {
	return types.Resource{Source: new("data:," + dataurl.Escape(content))}
}

// verifier verifies the decompressed content that is written to it against a hash in Ignition's form, TYPE-HEX.
type verifier struct {
	io.Writer
	sum  hash.Hash // nil: of an unknown type
	hash *string   // nil: none is wanted
}

func newVerifier(hash *string) *verifier {
	v := &verifier{Writer: io.Discard, hash: hash}
	if hash == nil {
		return v
	}
	switch kind, _, _ := strings.Cut(*hash, "-"); kind {
	case "sha256":
		v.sum = sha256.New()
	case "sha512":
		v.sum = sha512.New()
	default:
		return v
	}
	v.Writer = v.sum
	return v
}

// verify returns an error if the content is another one.
func (v *verifier) verify() error {
	if v.hash == nil {
		return nil
	}
	kind, want, _ := strings.Cut(*v.hash, "-")
	if v.sum == nil {
		return fmt.Errorf("its hash is of the unknown type %q", kind)
	}
	if got := hex.EncodeToString(v.sum.Sum(nil)); got != strings.ToLower(want) { // Ignition accepts hex digits in either case
		return fmt.Errorf("its content has the hash %s-%s, not %s", kind, got, *v.hash)
	}
	return nil
}
