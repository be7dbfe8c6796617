package source

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"go.podman.io/image/v5/signature"
)

// pathKeys are the keys in containers-policy.json(5) whose values name files.
var pathKeys = []string{"keyPath", "keyPaths", "caPath", "caRootsPath", "caIntermediatesPath", "rekorPublicKeyPath", "rekorPublicKeyPaths"}

// parsePolicy parses the host's policy. Paths in it are relative to the host's root, which the
// library does not know, so they are rewritten before the library parses the policy.
func (h *Host) parsePolicy(text []byte) (*signature.Policy, error) {
	parsed, err := signature.NewPolicyFromBytes(text) // strict; checks the original text
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

// rebase prefixes the paths in a policy with the host's root.
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

// below prefixes a path, or each path of a list, with the host's root. Relative paths are not
// changed.
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
