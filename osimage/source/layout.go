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

	"machine-pivot/osimage/imagefault"
)

// layoutSource reads an image from an OCI layout (image-spec, image-layout.md).
//
// The library has a reader of its own. It unpacks an archive into a temporary
// directory first, and fetches layers from the network where the manifest has
// URLs; this one reads what is there, where it is.
type layoutSource struct {
	ref   types.ImageReference
	files files
	top   imgspec.Descriptor // of the image, in index.json
}

// files are the files of a layout, by their slash-separated paths in it.
type files interface {
	open(name string) (content io.ReadCloser, size int64, err error)
	Close() error
}

// maxManifest bounds what is read into memory, as registries bound it.
const maxManifest = 4 << 20

// openLayout finds the image of a name, or the only one if name is empty. It
// closes the files if it fails.
func openLayout(ref types.ImageReference, files files, name string) (types.ImageSource, error) {
	s := &layoutSource{ref: ref, files: files}
	text, err := s.read("index.json")
	if err == nil {
		s.top, err = findImage(text, name)
	}
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	return s, nil
}

// findImage chooses from a layout's index.json.
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

// read reads a small file.
func (s *layoutSource) read(name string) ([]byte, error) {
	content, _, err := s.files.open(name)
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
func (s *layoutSource) Reference() types.ImageReference { return s.ref }

// Close implements types.ImageSource.
func (s *layoutSource) Close() error { return s.files.Close() }

// GetManifest implements types.ImageSource.
func (s *layoutSource) GetManifest(_ context.Context, instance *digestlib.Digest) ([]byte, string, error) {
	digest, mime := s.top.Digest, s.top.MediaType
	if instance != nil {
		digest, mime = *instance, ""
	}
	name, err := blobPath(digest)
	if err != nil {
		return nil, "", err
	}
	text, err := s.read(name)
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

// GetBlob implements types.ImageSource. Who reads verifies.
func (s *layoutSource) GetBlob(_ context.Context, blob types.BlobInfo, _ types.BlobInfoCache) (io.ReadCloser, int64, error) {
	name, err := blobPath(blob.Digest)
	if err != nil {
		return nil, 0, err
	}
	return s.files.open(name)
}

// HasThreadSafeGetBlob implements types.ImageSource.
func (s *layoutSource) HasThreadSafeGetBlob() bool { return true }

// GetSignatures implements types.ImageSource: a layout holds none.
func (s *layoutSource) GetSignatures(context.Context, *digestlib.Digest) ([][]byte, error) {
	return nil, nil
}

// LayerInfosForCopy implements types.ImageSource: the layers are as the manifest says.
func (s *layoutSource) LayerInfosForCopy(context.Context, *digestlib.Digest) ([]types.BlobInfo, error) {
	return nil, nil
}

// blobPath is where a layout has a blob.
func blobPath(digest digestlib.Digest) (string, error) {
	if err := digest.Validate(); err != nil {
		return "", fmt.Errorf("cannot use the digest %q: %w", digest, err)
	}
	return path.Join("blobs", digest.Algorithm().String(), digest.Encoded()), nil
}
