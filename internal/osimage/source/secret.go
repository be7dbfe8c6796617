package source

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/docker/config"
	"go.podman.io/image/v5/types"
)

// PullSecrets are the paths of pull secrets, in the order in which they are looked at:
// first those that an administrator wrote for ostree, then the installer's for kubelet,
// then that of the cluster's internal registry, and last the image's own. For each
// mirror and registry the first file that has credentials for it counts. After these
// come the library's own paths (/run/containers/0/auth.json, ~/.docker/config.json …).
// All have the format of containers-auth.json(5).
func PullSecrets() []string {
	return []string{
		"/run/ostree/auth.json",
		"/etc/ostree/auth.json",
		"/var/lib/kubelet/config.json",
		"/etc/mco/internal-registry-pull-secret.json",
		"/usr/lib/ostree/auth.json",
	}
}

// secret is where the credentials for an image are.
type secret struct {
	path   string   // the file that is used, or a text for the library's own paths
	looked []string // the files that were looked at
	found  bool     // path has credentials for the image
}

// hint says which credentials a registry refused.
func (s secret) hint(host string) string {
	if s.found {
		return fmt.Sprintf("the registry refused the credentials for %s in %s", host, s.path)
	}
	return fmt.Sprintf("no credentials for %s in any of %s", host, strings.Join(s.looked, ", "))
}

// findSecret chooses the pull secret for an image, by the name that it has at the
// endpoint, and reads the credentials.
func (h *Host) findSecret(sys *types.SystemContext, name reference.Named) (types.DockerAuthConfig, secret, error) {
	paths := []string{h.AuthFile}
	if h.AuthFile == "" {
		paths = nil
		for _, known := range PullSecrets() {
			paths = append(paths, h.path(known))
		}
	}
	s := secret{path: h.AuthFile, looked: paths}
	for _, path := range paths {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && h.AuthFile == "" {
			continue
		} else if err != nil {
			return types.DockerAuthConfig{}, s, fmt.Errorf("cannot read pull secret: %w", err)
		}
		if found, err := credentials(sys, path, name); err != nil {
			return types.DockerAuthConfig{}, s, fmt.Errorf("cannot read pull secret %s: %w", path, err)
		} else if found != (types.DockerAuthConfig{}) {
			s.path, s.found = path, true
			return found, s, nil
		}
	}
	if h.AuthFile != "" {
		return types.DockerAuthConfig{}, s, nil
	}
	found, err := credentials(sys, "", name)
	if err != nil {
		err = fmt.Errorf("cannot read the pull secrets of containers-auth.json(5): %w", err)
	}
	s.path, s.found = "the places of containers-auth.json(5)", found != (types.DockerAuthConfig{})
	return found, s, err
}

// credentials are those that a file has for an image; the path "" stands for the
// library's own paths.
func credentials(sys *types.SystemContext, path string, name reference.Named) (types.DockerAuthConfig, error) {
	only := *sys
	only.AuthFilePath = path
	return config.GetCredentialsForRef(&only, name)
}
