package registry

import (
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Pulled are the manifests and blobs that were asked for since a number of requests, in
// the order of their digests.
func (r *Registry) Pulled(since int) (digests []string) {
	for _, request := range r.RequestLog()[since:] {
		if strings.HasPrefix(request, "GET ") && (strings.Contains(request, "/manifests/") || strings.Contains(request, "/blobs/")) {
			digests = append(digests, path.Base(request))
		}
	}
	slices.Sort(digests)
	return digests
}

// LastLayer are the manifest, the config and the last layer of an image, in the order of
// their digests: what is Pulled of the next version by who has all other layers.
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
