package osimage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/docker/config"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
)

// PullSecrets are the places of pull secrets, in the order they are looked at:
// what an administrator gave ostree, then what the installer gave the kubelet,
// then the cluster's internal registry. The first file that has credentials for
// the image's registry, or one of its mirrors, is used; after all of them the
// library's own places (/run/containers/0/auth.json, ~/.docker/config.json …).
// All have the format of containers-auth.json(5).
func PullSecrets() []string {
	return []string{
		"/run/ostree/auth.json",
		"/etc/ostree/auth.json",
		"/var/lib/kubelet/config.json",
		"/etc/mco/internal-registry-pull-secret.json",
	}
}

// secret is where the credentials for an image are.
type secret struct {
	path   string   // the file used; "" for the library's own places
	looked []string // the files looked at
	found  bool     // path has credentials for the image
}

// hint says what to do if the registry refuses us.
func (s secret) hint(host string) string {
	if s.found {
		return fmt.Sprintf("the registry refused the credentials for %s in %s", host, s.path)
	}
	return fmt.Sprintf("no credentials for %s in any of %s", host, strings.Join(s.looked, ", "))
}

// findSecret chooses the pull secret for an image of a registry.
func (p *Puller) findSecret(sys *types.SystemContext, ref Reference) (secret, error) {
	names, err := pullNames(sys, ref)
	if err != nil {
		return secret{}, err
	}
	paths := []string{p.AuthFile}
	if p.AuthFile == "" {
		paths = nil
		for _, known := range PullSecrets() {
			paths = append(paths, p.path(known))
		}
	}
	s := secret{path: p.AuthFile, looked: paths}
	for _, path := range paths {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && p.AuthFile == "" {
			continue
		} else if err != nil {
			return s, fmt.Errorf("cannot read pull secret: %w", err)
		}
		if ok, err := hasCredentials(sys, path, names); err != nil {
			return s, fmt.Errorf("cannot read pull secret %s: %w", path, err)
		} else if ok {
			s.path, s.found = path, true
			return s, nil
		}
	}
	return s, nil
}

// pullNames are the names under which an image is tried: mirrors, then its own.
func pullNames(sys *types.SystemContext, ref Reference) ([]reference.Named, error) {
	named, err := ref.named()
	if err != nil {
		return nil, err
	}
	registry, err := sysregistriesv2.FindRegistry(sys, named.Name())
	if err != nil {
		return nil, fmt.Errorf("cannot read the registries configuration: %w", err)
	}
	if registry == nil {
		return []reference.Named{named}, nil
	}
	sources, err := registry.PullSourcesFromReference(named)
	if err != nil {
		return nil, fmt.Errorf("cannot apply the registries configuration: %w", err)
	}
	names := make([]reference.Named, len(sources))
	for i, source := range sources {
		names[i] = source.Reference
	}
	return names, nil
}

func hasCredentials(sys *types.SystemContext, path string, names []reference.Named) (bool, error) {
	only := *sys
	only.AuthFilePath = path
	for _, name := range names {
		found, err := config.GetCredentialsForRef(&only, name)
		if err != nil {
			return false, err
		}
		if found != (types.DockerAuthConfig{}) {
			return true, nil
		}
	}
	return false, nil
}
