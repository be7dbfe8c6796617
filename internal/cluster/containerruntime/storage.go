package containerruntime

import (
	"errors"
	"fmt"

	"github.com/BurntSushi/toml"
)

// StoragePath is the configuration of container storage, for CRI-O and podman.
const StoragePath = "/etc/containers/storage.conf"

// withSize returns a storage.conf with another size for a container's file system. Everything else
// in the file is kept, unknown keys included, except comments. Without a file it fails: the
// defaults are up to the operating system.
func withSize(storage []byte, size string) ([]byte, error) {
	if storage == nil {
		return nil, errors.New("overlaySize changes " + StoragePath + ", but there is none: give the pool's rendered MachineConfig, which has it")
	}
	var tree map[string]any
	if _, err := toml.Decode(string(storage), &tree); err != nil {
		return nil, fmt.Errorf("cannot merge into %s: %w", StoragePath, err)
	}
	options, err := table(tree, "storage", "options")
	if err != nil {
		return nil, fmt.Errorf("cannot merge into %s: %w", StoragePath, err)
	}
	options["size"] = size
	// A size in the driver's own table takes precedence.
	if overlay, ok := options["overlay"].(map[string]any); ok {
		if old, ok := overlay["size"].(string); ok && old != "" {
			overlay["size"] = size
		}
	}
	return encode(tree)
}

// table returns the table at a path. It is created if it does not exist.
func table(tree map[string]any, path ...string) (map[string]any, error) {
	for _, name := range path {
		switch next := tree[name].(type) {
		case nil:
			made := map[string]any{}
			tree[name] = made
			tree = made
		case map[string]any:
			tree = next
		default:
			return nil, fmt.Errorf("%s is not a table", name)
		}
	}
	return tree, nil
}
