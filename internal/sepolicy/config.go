// Package sepolicy reads what an SELinux policy has on disk: its configuration, and the label that its file contexts
// give a path.
//
// It parses file_contexts(5) itself. setfiles(8) cannot be used: it fails unless the running
// policy knows every label, but it may not know all labels of a newer system.
//
// Sources: selinux_config(5), file_contexts(5), selabel_file(5). The precedence of patterns
// is that of libselinux (label_file.c); tests compare the results.
package sepolicy

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files reads a file of an SELinux configuration by its path relative to /etc/selinux. If the
// file does not exist, the error is an fs.ErrNotExist.
type Files func(name string) ([]byte, error)

// In returns Files that read the configuration in a directory such as /etc/selinux. Compiled
// contexts that are older than their text count as missing, as in libselinux.
func In(dir string) Files {
	return func(name string) ([]byte, error) {
		file := filepath.Join(dir, name)
		if text, ok := strings.CutSuffix(file, compiledSuffix); ok && olderThan(file, text) {
			return nil, fs.ErrNotExist
		}
		return readFile(file)
	}
}

// readFile reads a file, up to one byte more than any file of a policy may have.
func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxBytes+1))
}

func olderThan(file, other string) bool {
	a, err := os.Stat(file)
	b, berr := os.Stat(other)
	return err == nil && berr == nil && a.ModTime().Before(b.ModTime())
}

// Config holds the settings in /etc/selinux/config (selinux_config(5)).
type Config struct {
	Mode   string // SELINUX: enforcing, permissive or disabled; "" if it is not set
	Policy string // SELINUXTYPE: the name of the policy
}

// Config reads the file "config". If it does not exist, the Config is zero.
func (f Files) Config() (Config, error) {
	text, err := f("config")
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, nil
	}
	if err != nil {
		return Config{}, fmt.Errorf("cannot read SELinux's configuration: %w", err)
	}
	var c Config
	for line := range strings.Lines(string(text)) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
		case "SELINUX":
			c.Mode = strings.ToLower(strings.TrimSpace(value))
		case "SELINUXTYPE":
			c.Policy = strings.TrimSpace(value)
		}
	}
	return c, nil
}

// On reports whether SELinux is enabled on a system with this configuration, provided that its
// kernel supports it.
func (c Config) On() bool {
	return strings.HasPrefix(c.Mode, "enforcing") || strings.HasPrefix(c.Mode, "permissive") // as libselinux reads it
}
