package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	digestlib "github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"machine-pivot/internal/osimage/source/bundle"
	"machine-pivot/internal/retry"
)

// Limits of what is read to find the bundles of an image.
const (
	maxReferrers = 64      // manifests that refer to the image
	maxIndexSize = 4 << 20 // of the list of them, in bytes, and of each
)

// bundles returns the Sigstore bundles that a registry has for the manifest with a digest: as layers of the
// manifests that refer to it, which the registry lists, or, if it cannot, an image index with a tag made of
// the digest (OCI distribution specification 1.1, "Referrers Tag Schema").
func (r *registry) bundles(ctx context.Context, digest digestlib.Digest) (found [][]byte, err error) {
	index, err := r.referrers(ctx, digest)
	if err != nil {
		return nil, err
	}
	for n, m := range index.Manifests {
		if n == maxReferrers {
			return found, fmt.Errorf("more than %d manifests refer to the image", maxReferrers)
		}
		if !mayBeBundle(m) {
			continue
		}
		blobs, err := r.bundlesIn(ctx, m.Digest)
		if err != nil {
			return nil, err
		}
		found = append(found, blobs...)
	}
	return found, nil
}

// mayBeBundle reports whether a manifest may have a bundle. Registries and clients that are older than the
// specification's final version put the type of the config in the place of the artifact's type.
func mayBeBundle(m imgspec.Descriptor) bool {
	return m.MediaType == imgspec.MediaTypeImageManifest &&
		(m.ArtifactType == "" || m.ArtifactType == imgspec.MediaTypeEmptyJSON || slices.Contains(bundle.MediaTypes(), m.ArtifactType))
}

func (r *registry) referrers(ctx context.Context, digest digestlib.Digest) (index imgspec.Index, err error) {
	data, err := r.read(ctx, "/referrers/"+digest.String(), maxIndexSize)
	if isStatus(err, http.StatusNotFound) || isStatus(err, http.StatusMethodNotAllowed) {
		data, err = r.read(ctx, "/manifests/"+strings.Replace(digest.String(), ":", "-", 1), maxIndexSize)
		if isStatus(err, http.StatusNotFound) {
			return index, nil // nothing refers to the image
		}
	}
	if err != nil {
		return index, err
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return index, fmt.Errorf("cannot parse the list of what refers to the image: %w", err)
	}
	return index, nil
}

// bundlesIn returns the bundles that are layers of a manifest.
func (r *registry) bundlesIn(ctx context.Context, digest digestlib.Digest) (found [][]byte, err error) {
	data, err := r.readDigested(ctx, "/manifests/", digest, maxIndexSize)
	if err != nil {
		return nil, err
	}
	var m imgspec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("cannot parse the manifest %s: %w", digest, err)
	}
	for _, l := range m.Layers {
		if !slices.Contains(bundle.MediaTypes(), l.MediaType) || len(found) > 0 { // a manifest has one
			continue
		}
		blob, err := r.readDigested(ctx, "/blobs/", l.Digest, bundle.MaxSize)
		if err != nil {
			return nil, err
		}
		found = append(found, blob)
	}
	return found, nil
}

// readDigested reads what a digest names, and verifies it.
func (r *registry) readDigested(ctx context.Context, below string, digest digestlib.Digest, most int64) ([]byte, error) {
	if err := checkDigest("a signature", digest); err != nil {
		return nil, err
	}
	data, err := r.read(ctx, below+digest.String(), most)
	if err == nil && digestlib.FromBytes(data) != digest {
		err = fmt.Errorf("the registry answers with something else for %s", digest)
	}
	return data, err
}

// read requests something in the repository and returns the body of the answer, of at most most bytes.
func (r *registry) read(ctx context.Context, path string, most int64) ([]byte, error) {
	request, err := r.request(ctx, http.MethodGet, r.inRepository(path))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", imgspec.MediaTypeImageIndex+", "+imgspec.MediaTypeImageManifest+", */*")
	response, err := r.client().Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, retry.WithAsked(answer{response.StatusCode}, response.Header.Get)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("the answer to %s has more than %d bytes", path, most)
	}
	return data, err
}

// isStatus reports whether an error is that of a response with a status.
func isStatus(err error, status int) bool {
	got, ok := errors.AsType[answer](err)
	return ok && got.status == status
}
