package registry

import (
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Pulled returns the digests of the manifests and blobs that were requested after the first since
// requests, sorted.
func (r *Registry) Pulled(since int) (digests []string) {
	for _, request := range r.RequestLog()[since:] {
		if strings.HasPrefix(request, "GET ") && (strings.Contains(request, "/manifests/") || strings.Contains(request, "/blobs/")) {
			digests = append(digests, path.Base(request))
		}
	}
	slices.Sort(digests)
	return digests
}

// LastLayer returns the sorted digests of the manifest, the config and the last layer of an image.
// This is the result of Pulled for a client that has all other layers.
func LastLayer(img v1.Image) (digests []string, err error) {
	manifest, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	last := manifest.Layers[len(manifest.Layers)-1]
	digests = []string{digest.String(), manifest.Config.Digest.String(), last.Digest.String()}
	slices.Sort(digests)
	return digests, nil
}
