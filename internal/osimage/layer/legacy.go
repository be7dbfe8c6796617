package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
)

// The directories of a legacy image's repository.
const (
	legacyObjects = "srv/repo/objects/"
	legacyHeads   = "srv/repo/refs/heads/"
)

// Limits for the refs in a layer: the size of a ref's name or content in bytes, the number of
// refs, and the memory that they take in bytes. An ordinary image has one ref.
const (
	maxRefLength = 1 << 10
	maxRefs      = 1 << 10
	maxRefMemory = 64 << 10
	refOverhead  = 64
)

// LegacyLabel is the label that names a legacy image's commit.
const LegacyLabel = "com.coreos.ostree-commit"

// errObject is the error for a file in the repository that cannot be used as an object.
var errObject = errors.New("not an object of an archive repository")

// Legacy is the Content of a layer with files of an archive repository. The repository is
// the union of all layers. An object is the same in each layer that has it, so a higher layer
// can change or hide refs only.
type Legacy struct {
	sink    Sink
	heads   map[string]head // the layer's changes to refs below refs/heads
	memory  int             // bytes that these refs take
	objects bool            // the layer has objects
}

// NewLegacy returns a Content that puts a layer's objects into a sink.
func NewLegacy(sink Sink) *Legacy { return &Legacy{sink: sink, heads: map[string]head{}} }

// head is the content of a ref, or its removal by a whiteout.
type head struct {
	content string
	hidden  bool
}

func (r *Legacy) entry(ctx context.Context, to *feeder, header *tar.Header, name string, body io.Reader) error {
	if object, ok := strings.CutPrefix(name, legacyObjects); ok {
		return r.object(ctx, to, header, object, body)
	}
	if ref, ok := strings.CutPrefix(name, legacyHeads); ok {
		return r.head(header, ref, body)
	}
	return nil
}

// object puts one object into the sink.
func (r *Legacy) object(ctx context.Context, to *feeder, header *tar.Header, name string, body io.Reader) error {
	object, archive, err := ostree.ParseLoosePath(name)
	if err != nil || header.Typeflag == tar.TypeDir {
		return nil // not an object: a directory, a whiteout
	}
	if header.Typeflag != tar.TypeReg || object.Type == ostree.File && !archive {
		return fmt.Errorf("/%s%s: %w", legacyObjects, name, errObject)
	}
	r.objects = true
	return to.feed(ctx, header.Size, body, func(body io.Reader) error {
		if object.Type == ostree.File {
			return r.sink.AddArchiveFile(ctx, object.Checksum, body)
		}
		return r.sink.AddMetadata(ctx, object, body)
	})
}

// head records a ref.
func (r *Legacy) head(header *tar.Header, name string, body io.Reader) error {
	if r.memory += len(name) + refOverhead; len(name) > maxRefLength || len(r.heads) == maxRefs || r.memory > maxRefMemory {
		return imagefault.TooLarge("it has more than %d refs, %d bytes of them, or one with a name of more than %d bytes", maxRefs, maxRefMemory, maxRefLength)
	}
	if hidden, ok := strings.CutPrefix(path.Base(name), whiteout); ok {
		r.heads[path.Join(path.Dir(name), hidden)] = head{hidden: true}
		return nil
	}
	if header.Typeflag != tar.TypeReg || header.Size > maxRefLength {
		return nil
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	r.memory += len(text)
	r.heads[name] = head{content: strings.TrimSpace(string(text))}
	return nil
}

// ended implements Content. Nothing is required: a layer may have any part of the repository.
func (r *Legacy) ended() error { return nil }

// ofObjects implements Content.
func (*Legacy) ofObjects() bool { return true }

// LegacyCommit returns the commit of an image: the commit in its label (LegacyLabel) or, if
// label is empty, that of the only ref in all of its layers.
func LegacyCommit(label string, layers []*Legacy) (ostree.Checksum, error) {
	heads, objects := map[string]string{}, false
	for _, layer := range layers {
		objects = objects || layer.objects
		for name, h := range layer.heads {
			heads[name] = h.content
			if h.hidden {
				delete(heads, name)
			}
		}
	}
	text, from := label, "its label "+LegacyLabel
	if text == "" {
		name, err := onlyHead(heads, objects)
		if err != nil {
			return ostree.Checksum{}, err
		}
		text, from = heads[name], "its ref "+printable.Line(name)
	}
	if !objects {
		return ostree.Checksum{}, fault.New(fault.BadInput, "this is no image of a host: it has no ostree objects (nothing in /%s)", legacyObjects).WithHint(wrongImage)
	}
	commit, err := ostree.ParseChecksum(text)
	if err != nil {
		return ostree.Checksum{}, fault.New(fault.BadInput, "%s names no commit: %w", from, err)
	}
	return commit, nil
}

const (
	wrongImage    = "compare its name and tag with those of an image for hosts: skopeo inspect --config docker://IMAGE"
	namesNoCommit = "build the image again, with the label %s that names the commit"
)

// onlyHead returns the name of the repository's only ref.
func onlyHead(heads map[string]string, objects bool) (string, error) {
	names := slices.Sorted(maps.Keys(heads))
	switch {
	case !objects && len(names) == 0:
		return "", fault.New(fault.BadInput, "this is no image of a host: it has neither a kernel (/usr/lib/modules/*/vmlinuz) nor an ostree commit (no label %s, no /srv/repo)", LegacyLabel).WithHint(wrongImage)
	case len(names) == 0:
		return "", fault.New(fault.BadInput, "no refs found in its /srv/repo, and it has no label %s", LegacyLabel).WithHint(namesNoCommit, LegacyLabel)
	case len(names) > 1:
		return "", fault.New(fault.BadInput, "multiple refs found in its /srv/repo (%s), and it has no label %s",
			printable.Line(strings.Join(names, ", ")), LegacyLabel).WithHint(namesNoCommit, LegacyLabel)
	}
	return names[0], nil
}
