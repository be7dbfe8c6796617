package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Push stores an image and returns the digest of its manifest. It bypasses the network, faults and
// the request log; layers are streamed to disk.
func (r *Registry) Push(ctx context.Context, repo, tag string, img v1.Image) (digest string, err error) {
	layers, err := img.Layers()
	if err != nil {
		return "", fmt.Errorf("cannot push %s: %w", repo, err)
	}
	for _, layer := range layers {
		if err := r.pushLayer(ctx, layer); err != nil {
			return "", fmt.Errorf("cannot push a layer of %s: %w", repo, err)
		}
	}
	name, err := img.ConfigName()
	if err != nil {
		return "", fmt.Errorf("cannot push %s: %w", repo, err)
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return "", fmt.Errorf("cannot push %s: %w", repo, err)
	}
	if err := blobDir(r.dir).Put(ctx, "", name, io.NopCloser(bytes.NewReader(config))); err != nil {
		return "", fmt.Errorf("cannot push the config of %s: %w", repo, err)
	}
	return r.pushManifest(ctx, repo, tag, img)
}

// PushIndex stores a manifest list of images that were pushed to the same repo, and returns its digest.
func (r *Registry) PushIndex(ctx context.Context, repo, tag string, index v1.ImageIndex) (digest string, err error) {
	return r.pushManifest(ctx, repo, tag, index)
}

func (r *Registry) pushLayer(ctx context.Context, layer v1.Layer) error {
	digest, err := layer.Digest()
	if err != nil {
		return err
	}
	if _, err := (blobDir(r.dir)).Stat(ctx, "", digest); err == nil {
		return nil
	}
	body, err := layer.Compressed()
	if err != nil {
		return err
	}
	return blobDir(r.dir).Put(ctx, "", digest, body)
}

// manifest has the common methods of images and indexes.
type manifest interface {
	MediaType() (types.MediaType, error)
	RawManifest() ([]byte, error)
	Digest() (v1.Hash, error)
}

func (r *Registry) pushManifest(ctx context.Context, repo, tag string, m manifest) (string, error) {
	raw, err := m.RawManifest()
	mediaType, typeErr := m.MediaType()
	digest, digestErr := m.Digest()
	if err := errors.Join(err, typeErr, digestErr); err != nil {
		return "", fmt.Errorf("cannot push %s: %w", repo, err)
	}
	url := fmt.Sprintf("https://registry/v2/%s/manifests/%s", repo, tag)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(raw))
	if err != nil {
		return "", fmt.Errorf("cannot push %s: %w", repo, err)
	}
	req.Header.Set("Content-Type", string(mediaType))
	answer := recorder{header: http.Header{}, status: http.StatusOK}
	r.inner.ServeHTTP(&answer, req)
	if answer.status >= 300 {
		return "", fmt.Errorf("cannot push %s: status %d: %s", repo, answer.status, answer.body.String())
	}
	return digest.String(), nil
}

// recorder records a response.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// Lists reports whether the registry lists what refers to a manifest.
func (r *Registry) Lists() bool { return r.opts.Referrers }
