package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	digestlib "github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"

	"machine-pivot/internal/osimage/imagefault"
)

// layout is an image in an OCI layout (image-spec, image-layout.md), which is read in place.
//
// The image library's own readers unpack an archive into a temporary directory first, and fetch layers from the network if
// the manifest has URLs. A layout does neither. It returns no signatures, because it has none, and does not verify the digest
// of a layer; the reader of the layer must do that. A manifest has at most 4 MiB.
type layout struct {
	ref   types.ImageReference
	files files
	top   imgspec.Descriptor // of the image, from index.json
}

// files are the files of a layout, by their slash-separated paths in it.
type files interface {
	open(name string) (content io.ReadCloser, size int64, err error)
	Close() error
}

// maxManifest bounds the size of a file that is read into memory. Registries have the same limit.
const maxManifest = 4 << 20

// openLayout finds the image with a name in a layout, or the only image if the name is empty. It closes the files if it
// fails. The source's Reference returns ref.
func openLayout(ref types.ImageReference, files files, name string) (types.ImageSource, error) {
	s := &layout{ref: ref, files: files}
	text, err := readSmall(files, "index.json")
	if err == nil {
		s.top, err = findImage(text, name)
	}
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	return s, nil
}

// findImage finds the image with a name in a layout's index.json.
func findImage(text []byte, name string) (imgspec.Descriptor, error) {
	var index imgspec.Index
	if err := json.Unmarshal(text, &index); err != nil {
		return imgspec.Descriptor{}, fmt.Errorf("cannot parse index.json: %w", err)
	}
	var names []string
	for _, image := range index.Manifests {
		own := image.Annotations[imgspec.AnnotationRefName]
		if name != "" && own == name || name == "" && len(index.Manifests) == 1 {
			return image, nil
		}
		names = append(names, fmt.Sprintf("%q", own))
	}
	if name == "" && len(names) > 0 {
		return imgspec.Descriptor{}, fmt.Errorf("it holds more than one image, name one: %s", strings.Join(names, ", "))
	}
	return imgspec.Descriptor{}, fmt.Errorf("it holds no image %q, only [%s]", name, strings.Join(names, ", "))
}

// readSmall reads a small file.
func readSmall(from files, name string) ([]byte, error) {
	content, _, err := from.open(name)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	text, err := io.ReadAll(io.LimitReader(content, maxManifest+1))
	if err == nil && len(text) > maxManifest {
		err = fmt.Errorf("it has more than %d bytes", maxManifest)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	return text, nil
}

// Reference implements types.ImageSource.
func (s *layout) Reference() types.ImageReference { return s.ref }

// Close implements types.ImageSource.
func (s *layout) Close() error { return s.files.Close() }

// GetManifest implements types.ImageSource.
func (s *layout) GetManifest(_ context.Context, instance *digestlib.Digest) ([]byte, string, error) {
	digest, mime := s.top.Digest, s.top.MediaType
	if instance != nil {
		digest, mime = *instance, ""
	}
	name, err := blobPath(digest)
	if err != nil {
		return nil, "", err
	}
	text, err := readSmall(s.files, name)
	if err != nil {
		return nil, "", err
	}
	if digest.Algorithm().FromBytes(text) != digest {
		return nil, "", imagefault.Damaged("the manifest %s has another content", digest)
	}
	if mime == "" {
		mime = manifest.GuessMIMEType(text)
	}
	return text, mime, nil
}

// GetBlob implements types.ImageSource. It does not verify the content.
func (s *layout) GetBlob(_ context.Context, blob types.BlobInfo, _ types.BlobInfoCache) (io.ReadCloser, int64, error) {
	name, err := blobPath(blob.Digest)
	if err != nil {
		return nil, 0, err
	}
	return s.files.open(name)
}

// HasThreadSafeGetBlob implements types.ImageSource.
func (s *layout) HasThreadSafeGetBlob() bool { return true }

// GetSignatures implements types.ImageSource: a layout holds none.
func (s *layout) GetSignatures(context.Context, *digestlib.Digest) ([][]byte, error) {
	return nil, nil
}

// LayerInfosForCopy implements types.ImageSource. Nil means the layers in the manifest.
func (s *layout) LayerInfosForCopy(context.Context, *digestlib.Digest) ([]types.BlobInfo, error) {
	return nil, nil
}

// blobPath returns the path of a blob in a layout.
func blobPath(digest digestlib.Digest) (string, error) {
	if err := digest.Validate(); err != nil {
		return "", fmt.Errorf("cannot use the digest %q: %w", digest, err)
	}
	return path.Join("blobs", digest.Algorithm().String(), digest.Encoded()), nil
}
