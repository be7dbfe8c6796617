package registry

import (
	"bytes"
	"context"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// PushManifest stores a manifest of any type unchanged, without the blobs that it refers to, and
// returns its digest.
func (r *Registry) PushManifest(ctx context.Context, repo, tag string, mediaType types.MediaType, raw []byte) (digest string, err error) {
	return r.pushManifest(ctx, repo, tag, rawManifest{mediaType, raw})
}

type rawManifest struct {
	mediaType types.MediaType
	raw       []byte
}

func (m rawManifest) MediaType() (types.MediaType, error) { return m.mediaType, nil }
func (m rawManifest) RawManifest() ([]byte, error)        { return m.raw, nil }

func (m rawManifest) Digest() (v1.Hash, error) {
	digest, _, err := v1.SHA256(bytes.NewReader(m.raw))
	return digest, err
}
