package source

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"go.podman.io/image/v5/signature"
)

// pathKeys are the members of containers-policy.json(5) that name files.
var pathKeys = []string{"keyPath", "keyPaths", "caPath", "caRootsPath", "caIntermediatesPath", "rekorPublicKeyPath", "rekorPublicKeyPaths"}

// parsePolicy reads the host's policy. The paths in it are meant below the host's root,
// which the library does not know, so they are changed before it parses the policy.
func (h *Host) parsePolicy(text []byte) (*signature.Policy, error) {
	parsed, err := signature.NewPolicyFromBytes(text) // strictly, as it stands
	if err != nil || h.path("/") == "/" {
		return parsed, err
	}
	var policy any
	if err := json.Unmarshal(text, &policy); err != nil {
		return nil, fmt.Errorf("cannot read it: %w", err)
	}
	h.rebase(policy)
	if text, err = json.Marshal(policy); err != nil {
		return nil, fmt.Errorf("cannot place its files below %s: %w", h.path("/"), err)
	}
	return signature.NewPolicyFromBytes(text)
}

// rebase places the files that a policy names below the host's root.
func (h *Host) rebase(value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			h.rebase(element)
		}
	case map[string]any:
		for key, member := range value {
			if slices.Contains(pathKeys, key) {
				value[key] = h.below(member)
			} else {
				h.rebase(member)
			}
		}
	}
}

// below is a path, or a list of paths, below the host's root. Names that are not absolute
// stay as they are.
func (h *Host) below(value any) any {
	switch value := value.(type) {
	case string:
		if path.IsAbs(value) {
			return h.path(value)
		}
	case []any:
		for i, element := range value {
			value[i] = h.below(element)
		}
	}
	return value
}
