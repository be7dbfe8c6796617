package containerruntime

import (
	"errors"
	"fmt"

	"github.com/BurntSushi/toml"
)

// StoragePath configures the storage of containers, for CRI-O and podman.
const StoragePath = "/etc/containers/storage.conf"

// withSize is a storage.conf with another size of a container's own file system.
// It keeps all that the file says, also what this program does not know; its
// comments are lost. Without a file there is nothing to change: what a machine
// has by default is the operating system's business.
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
	// Where the driver's own table has a size, that one wins.
	if overlay, ok := options["overlay"].(map[string]any); ok {
		if old, ok := overlay["size"].(string); ok && old != "" {
			overlay["size"] = size
		}
	}
	return encode(tree)
}

// table is the table at a path, made if it is absent.
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
