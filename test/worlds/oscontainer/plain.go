package oscontainer

import (
	"fmt"
	"maps"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Plain builds an image of a whole OS without an ostree commit. All of its layers come from
// WithDerived.
func Plain(version string, opts ...Option) (v1.Image, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{"containers.bootc": "1", "ostree.bootable": "1", "org.opencontainers.image.version": version}
	maps.Copy(labels, o.labels)
	img, err := withConfig(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		labels, time.Unix(0, 0).UTC())
	if err == nil {
		img, err = derive(img, o)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot build a plain image: %w", err)
	}
	return img, nil
}

// PlainTree is Plain for the tree in a directory, distributed over n layers, with the layers of
// opts on top.
func PlainTree(dir, version string, n int, opts ...Option) (v1.Image, error) {
	entries, err := FromTree(dir)
	if err != nil {
		return nil, err
	}
	return Plain(version, append(Spread(entries, n), opts...)...)
}
