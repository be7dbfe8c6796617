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

// registryName is the name that an ostree image reference gives an image in its registry.
func registryName(reference string) string {
	for _, scheme := range []string{"ostree-unverified-registry:", "ostree-unverified-image:docker://", "ostree-image-signed:docker://"} {
		if name, ok := strings.CutPrefix(reference, scheme); ok {
			return name
		}
	}
	return reference
}

// openImage is the first that the daemon does for a container image, also for one
// that is in the repository: it reads the manifest from the registry (ostree-ext,
// container/store.rs: ImageImporter::new). That happens in the daemon, with its
// pull secrets and its environment, whatever the caller has.
func (c *call) openImage(reference string) error {
	sys := &types.SystemContext{
		RootForImplicitAbsolutePaths: c.Root, // /etc/containers
		AuthFilePath:                 c.authFile(),
		// The daemon's environment names no proxy.
		DockerProxy: func(*url.URL) (*url.URL, error) { return nil, nil },
	}
	if sys.AuthFilePath == "" {
		sys.DockerAuthConfig = &types.DockerAuthConfig{} // nobody
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

// authFile is the only pull secret that the daemon reads: the first of these
// files that is there (ostree-ext, globals.rs).
func (c *call) authFile() string {
	for _, dir := range []string{"run", "etc", "usr/lib"} {
		path := filepath.Join(c.Root, dir, "ostree/auth.json")
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return path
		}
	}
	return ""
}
