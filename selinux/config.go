package selinux

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Enabled is the name of the policy that a selinux_config(5) wants, or "" if SELinux
// is off. The last line of a key counts, as for libostree.
func Enabled(config string) (policy string) {
	enabled := false
	for line := range strings.Lines(config) {
		line = strings.TrimSpace(line)
		if mode, ok := strings.CutPrefix(line, "SELINUX="); ok {
			mode = strings.ToLower(mode)
			enabled = strings.HasPrefix(mode, "enforcing") || strings.HasPrefix(mode, "permissive")
		}
		if value, ok := strings.CutPrefix(line, "SELINUXTYPE="); ok {
			policy = value
		}
	}
	if !enabled {
		return ""
	}
	return policy
}

// Installed reads the contexts of the policy below a root directory, of a running
// system: as text, which is what its policy's tools write first. It is nil where SELinux
// is off, or was never installed.
func Installed(root string) (*Contexts, error) {
	dir := filepath.Join(root, "etc/selinux")
	config, err := os.ReadFile(filepath.Join(dir, "config"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	policy := Enabled(string(config))
	if policy == "" {
		return nil, nil
	}
	return Read(func(name string) ([]byte, error) {
		if strings.HasSuffix(name, compiledSuffix) {
			return nil, fs.ErrNotExist
		}
		return os.ReadFile(filepath.Join(dir, policy, Dir, name))
	})
}
