package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"machine-pivot/internal/ostree/keyfile"
)

// Repo is a repository of mode bare, the mode used on hosts.
type Repo struct {
	path       string
	settings   keyfile.File // the config file
	config     repoConfig
	checkLabel func(label string) error // see CheckLabels
}

// repoConfig holds the supported settings of a repository (ostree.repo-config(5)).
type repoConfig struct {
	fsync, perObjectFsync bool
	minFreePercent        uint64        // of the file system; 0 if minFreeBytes is set
	minFreeBytes          uint64        // 0 if minFreePercent is used
	lockTimeout           time.Duration // how long to wait for the lock; negative: forever
	verity                verity        // whether objects get fs-verity
}

// OpenRepo opens a repository. It reads only the configuration.
func OpenRepo(path string) (*Repo, error) {
	r := &Repo{path: path}
	text, err := os.ReadFile(filepath.Join(path, "config"))
	if err == nil {
		r.settings, err = keyfile.Parse(text)
	}
	if err == nil {
		r.config, err = parseConfig(r.settings)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open repository %s: %w", path, err)
	}
	return r, nil
}

// Path returns the path of the repository.
func (r *Repo) Path() string { return r.path }

// BootLoader returns the host's boot loader according to the repository's configuration
// (sysroot.bootloader), such as "none" or "zipl". "" means that libostree detects it.
func (r *Repo) BootLoader() string {
	name, _ := r.settings.Value("sysroot", "bootloader")
	return name
}

// WantsComposefs reports whether libostree creates composefs images because of the
// configuration (ex-integrity.composefs).
func (r *Repo) WantsComposefs() bool {
	value, _ := r.settings.Value("ex-integrity", "composefs")
	state, err := composefsState(value)
	return err == nil && (state == "yes" || state == "maybe")
}

// WantsVerity reports whether the configuration wants fs-verity for each object, required or where
// the file system supports it.
func (r *Repo) WantsVerity() bool { return r.config.verity != verityNo }

func parseConfig(f keyfile.File) (repoConfig, error) {
	core := func(key string) string {
		value, _ := f.Value("core", key)
		return value
	}
	if mode := core("mode"); mode != "bare" && mode != "" {
		return repoConfig{}, fmt.Errorf("its mode is %s, only bare is supported", mode)
	}
	if version := core("repo_version"); version != "1" {
		return repoConfig{}, fmt.Errorf("its version is %q, only 1 is supported", version)
	}
	c := repoConfig{fsync: core("fsync") != "false", perObjectFsync: core("per-object-fsync") == "true", minFreePercent: 3}
	if err := c.parseMinFree(f); err != nil {
		return repoConfig{}, err
	}
	var err error
	if c.verity, err = wantedVerity(f); err != nil {
		return repoConfig{}, err
	}
	c.lockTimeout = 300 * time.Second
	if text, ok := f.Value("core", "lock-timeout-secs"); ok {
		seconds, err := strconv.Atoi(text)
		if err != nil {
			return repoConfig{}, fmt.Errorf("lock-timeout-secs=%s: %w", text, err)
		}
		c.lockTimeout = time.Duration(seconds) * time.Second
	}
	return c, nil
}

func (c *repoConfig) parseMinFree(f keyfile.File) (err error) {
	if text, ok := f.Value("core", "min-free-space-percent"); ok {
		if c.minFreePercent, err = strconv.ParseUint(text, 10, 7); err != nil || c.minFreePercent > 99 {
			return fmt.Errorf("min-free-space-percent=%s: not a percentage", text)
		}
	}
	text, ok := f.Value("core", "min-free-space-size")
	if !ok {
		return nil
	}
	for unit, shift := range map[string]uint{"MB": 20, "GB": 30, "TB": 40} {
		if number, found := strings.CutSuffix(text, unit); found {
			n, err := strconv.ParseUint(number, 10, 20)
			if err != nil {
				return fmt.Errorf("min-free-space-size=%s: %w", text, err)
			}
			c.minFreePercent, c.minFreeBytes = 0, n<<shift
			return nil
		}
	}
	return fmt.Errorf("min-free-space-size=%s: no unit MB, GB or TB", text)
}

func (r *Repo) objectPath(n ObjectName) string { return filepath.Join(r.path, "objects", n.path()) }

// Has reports whether the repository has an object.
func (r *Repo) Has(n ObjectName) (bool, error) {
	_, err := os.Lstat(r.objectPath(n))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot look for object: %w", err)
	}
	return true, nil
}

// HasPartial reports whether a commit is marked as partial.
func (r *Repo) HasPartial(c Checksum) bool {
	_, err := os.Lstat(r.partialPath(c))
	return err == nil
}

func (r *Repo) partialPath(c Checksum) string {
	return filepath.Join(r.path, "state", c.String()+".commitpartial")
}
