package rpmostree

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/types"
)

// registryName returns the image name in an ostree image reference, without the transport.
func registryName(reference string) string {
	for _, scheme := range []string{"ostree-unverified-registry:", "ostree-unverified-image:docker://", "ostree-image-signed:docker://"} {
		if name, ok := strings.CutPrefix(reference, scheme); ok {
			return name
		}
	}
	return reference
}

// openImage reads the image's manifest from the registry, as the daemon first does for every
// container image, even for one in the repository (ostree-ext, container/store.rs:
// ImageImporter::new). The daemon uses its own pull secrets and environment, not the caller's.
func (c *call) openImage(reference string) error {
	sys := &types.SystemContext{
		RootForImplicitAbsolutePaths: c.Root, // /etc/containers
		AuthFilePath:                 c.authFile(),
		// The daemon's environment has no proxy.
		DockerProxy: func(*url.URL) (*url.URL, error) { return nil, nil },
	}
	if sys.AuthFilePath == "" {
		sys.DockerAuthConfig = &types.DockerAuthConfig{} // anonymous
	}
	err := readManifest(c.ctx, sys, registryName(reference))
	if err != nil {
		return failf("Creating importer: failed to invoke method OpenImage: failed to invoke method OpenImage: %v", err)
	}
	return nil
}

func readManifest(ctx context.Context, sys *types.SystemContext, name string) error {
	ref, err := docker.ParseReference("//" + name)
	if err != nil {
		return err
	}
	image, err := ref.NewImageSource(ctx, sys)
	if err != nil {
		return err
	}
	_, _, err = image.GetManifest(ctx, nil)
	return errors.Join(err, image.Close())
}

// authFile returns the only pull secret that the daemon reads: the first of these files that
// exists (ostree-ext, globals.rs).
func (c *call) authFile() string {
	for _, dir := range []string{"run", "etc", "usr/lib"} {
		path := filepath.Join(c.Root, dir, "ostree/auth.json")
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path
		}
	}
	return ""
}
