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

	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
)

// PullSecrets returns the paths of pull secrets in the order of the search: those of the administrator for ostree, the
// installer for kubelet, the cluster's internal registry, and the OS image. For each mirror and registry the first file
// with credentials for it counts. The library's own paths come last (/run/containers/0/auth.json, ~/.docker/config.json
// …). All files have the format of containers-auth.json(5).
func PullSecrets() []string {
	return []string{
		"/run/ostree/auth.json",
		"/etc/ostree/auth.json",
		"/var/lib/kubelet/config.json",
		"/etc/mco/internal-registry-pull-secret.json",
		"/usr/lib/ostree/auth.json",
	}
}

// secret records where the credentials for an image were found.
type secret struct {
	path   string   // the file that is used, or a description of the library's own paths
	looked []string // the files that were searched
	found  bool     // path has credentials for the image
}

// hint returns the hint for an image that a registry refuses to give: it names the credentials
// that were used, or the files without credentials.
func (s secret) hint(host string) string {
	if s.found {
		return fmt.Sprintf("the registry refused the credentials for %s in %s", host, s.path)
	}
	return fmt.Sprintf("no credentials for %s in any of %s", host, strings.Join(s.looked, ", "))
}

// librarySecret returns the first of the library's own paths. It is the only one that is below the host's root.
func librarySecret() string { return fmt.Sprintf("/run/containers/%d/auth.json", os.Getuid()) }

// secrets returns the paths that are searched. With another root that includes the library's, since the library
// does not follow links there.
func (h *Host) secrets() []string {
	if h.root() == "/" {
		return PullSecrets()
	}
	return append(PullSecrets(), librarySecret())
}

// findSecret chooses the pull secret for an image, given its name at the endpoint, and reads
// the credentials.
func (h *Host) findSecret(sys *types.SystemContext, name reference.Named) (types.DockerAuthConfig, secret, error) {
	paths := []string{h.AuthFile}
	if h.AuthFile == "" {
		paths = nil
		for _, known := range h.secrets() {
			path, err := h.path(known)
			if err != nil {
				return types.DockerAuthConfig{}, secret{}, h.secretError(h.shown(known), err)
			}
			paths = append(paths, path)
		}
	}
	s := secret{path: h.AuthFile, looked: paths}
	for _, path := range paths {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && h.AuthFile == "" {
			continue
		} else if err != nil {
			return types.DockerAuthConfig{}, s, h.secretError(path, err)
		}
		if err := (input.File{Path: path}).Check(); err != nil { // the library reads it whole, for each endpoint
			return types.DockerAuthConfig{}, s, h.secretError(path, err)
		}
		if found, err := credentials(sys, path, name); err != nil {
			return types.DockerAuthConfig{}, s, h.secretError(path, err)
		} else if found != (types.DockerAuthConfig{}) {
			s.path, s.found = path, true
			return found, s, nil
		}
	}
	if h.AuthFile != "" {
		return types.DockerAuthConfig{}, s, nil
	}
	own := *sys
	if h.checkWay(h.shown(librarySecret())) != nil {
		own.RootForImplicitAbsolutePaths = noRegistriesConfDir // its file there was read above; what the link leads to outside is not the host's
	}
	found, err := credentials(&own, "", name)
	if err != nil {
		err = unreadable("the pull secrets of containers-auth.json(5)", err, namedInError)
	}
	s.path, s.found = "the places of containers-auth.json(5)", found != (types.DockerAuthConfig{})
	return found, s, err
}

// secretError is the error for a pull secret that cannot be read.
func (h *Host) secretError(path string, err error) error {
	if h.AuthFile != "" {
		return fault.New(fault.Refused, "cannot read pull secret %s: %w", path, err).
			WithHint("correct it, or name another one: it is the one that --authfile names")
	}
	return unreadable("pull secret "+path, err, path)
}

// credentials returns a file's credentials for an image. The path "" stands for the library's
// own paths.
func credentials(sys *types.SystemContext, path string, name reference.Named) (types.DockerAuthConfig, error) {
	only := *sys
	only.AuthFilePath = path
	return config.GetCredentialsForRef(&only, name)
}
