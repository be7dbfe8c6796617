package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	ocilayout "go.podman.io/image/v5/oci/layout"
	"go.podman.io/image/v5/signature"

	"machine-pivot/internal/osimage/imageref"
)

// pathKeys are the keys in containers-policy.json(5) with names of files as values.
var pathKeys = []string{"keyPath", "keyPaths", "caPath", "caRootsPath", "caIntermediatesPath", "rekorPublicKeyPath", "rekorPublicKeyPaths"}

// parsePolicy parses the host's policy. Paths in it are relative to the host's root, which the
// library does not know, and the library reads OpenPGP keys otherwise than gpg. So both are rewritten before it parses the policy.
func (h *Host) parsePolicy(text []byte) (*signature.Policy, error) {
	parsed, err := signature.NewPolicyFromBytes(text) // strict; checks the original text
	if err != nil {
		return parsed, err
	}
	if err := checkScopes(parsed); err != nil {
		return nil, err
	}
	var policy any
	if err := json.Unmarshal(text, &policy); err != nil {
		return nil, fmt.Errorf("cannot read it: %w", err)
	}
	err = h.rebase(policy)
	if err == nil {
		text, err = json.Marshal(policy)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot place its files below %s: %w", h.root(), err)
	}
	return signature.NewPolicyFromBytes(text)
}

// checkScopes returns an error for a scope that no image in an archive can have. The library checks the scopes of the
// transports that it knows.
func checkScopes(policy *signature.Policy) error {
	for _, of := range []imageref.Transport{imageref.OCIArchive, imageref.DockerArchive} {
		for scope := range policy.Transports[string(of)] {
			if scope != "" && (of == imageref.DockerArchive || ocilayout.Transport.ValidatePolicyConfigurationScope(scope) != nil) {
				return fmt.Errorf("it has the scope %q for %s, which no image has", scope, of)
			}
		}
	}
	return nil
}

// rebase replaces the paths in a policy by their places below the host's root, and the keys of its requirements (asGPG).
func (h *Host) rebase(value any) (err error) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			err = errors.Join(err, h.rebase(element))
		}
	case map[string]any:
		for key, member := range value {
			var wrong error
			if slices.Contains(pathKeys, key) {
				value[key], wrong = h.below(member)
			} else {
				wrong = h.rebase(member)
			}
			err = errors.Join(err, wrong)
		}
		if err == nil {
			asGPG(value)
		}
	}
	return err
}

// below returns the place of a path, or of each path of a list, below the host's root. Relative paths are not
// changed.
func (h *Host) below(value any) (any, error) {
	switch value := value.(type) {
	case string:
		if path.IsAbs(value) && h.root() != "/" {
			return h.path(value)
		}
	case []any:
		for i, element := range value {
			at, err := h.below(element)
			if err != nil {
				return nil, err
			}
			value[i] = at
		}
	}
	return value, nil
}
