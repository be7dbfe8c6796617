package source

import (
	"path/filepath"
	"strings"

	"go.podman.io/image/v5/types"

	"machine-pivot/internal/osimage/imageref"
)

// requested returns the name that the signature policy is about. For a local image below the host's root, at
// which its path begins, that is the path that it has on the host, which may not exist outside.
func (h *Host) requested(at, ref imageref.Reference) (types.ImageReference, error) {
	if ref.Remote() || at == ref {
		return libraryRef(ref)
	}
	library, err := libraryRef(at)
	if err != nil {
		return nil, err
	}
	root, err := filepath.Abs(h.root())
	if err == nil {
		root, err = filepath.EvalSymlinks(root) // as in the library's paths
	}
	return onHost{library, root}, err
}

// onHost is a local image below a root directory. Its scopes in the policy are the paths that the library has
// found, without links, as they are on the host.
type onHost struct {
	types.ImageReference
	root string
}

// PolicyConfigurationIdentity implements types.ImageReference.
func (o onHost) PolicyConfigurationIdentity() string {
	identity := o.ImageReference.PolicyConfigurationIdentity()
	return strings.TrimPrefix(identity, o.root)
}

// PolicyConfigurationNamespaces implements types.ImageReference. The root and what is above it are no scopes.
func (o onHost) PolicyConfigurationNamespaces() (scopes []string) {
	for _, scope := range o.ImageReference.PolicyConfigurationNamespaces() {
		if below, ok := strings.CutPrefix(scope, o.root+"/"); ok {
			scopes = append(scopes, "/"+below)
		}
	}
	return scopes
}
