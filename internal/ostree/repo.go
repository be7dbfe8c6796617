package ostree

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Repo is a repository of mode bare, the mode used on hosts.
type Repo struct {
	Objects
	path       string
	settings   KeyFile // the config file
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
	r.Objects = r.objectPath
	text, err := os.ReadFile(filepath.Join(path, "config"))
	if err == nil {
		r.settings, err = ParseKeyFile(text)
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

// AppendedKeys returns the keys that libostree writes into boot entries which are not the default
// (sysroot.bls-append-except-default), and never removes. Fedora CoreOS has GRUB ask for a password there.
func (r *Repo) AppendedKeys() (keys []Key) {
	list, _ := r.settings.Value("sysroot", "bls-append-except-default")
	for pair := range strings.SplitSeq(list, ";") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			keys = append(keys, Key{name, value})
		}
	}
	return keys
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

func parseConfig(f KeyFile) (repoConfig, error) {
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
	c := repoConfig{minFreePercent: 3, lockTimeout: 300 * time.Second}
	fsync, err := boolean(core("fsync"), true)
	perObject, oerr := boolean(core("per-object-fsync"), false)
	if err := errors.Join(err, oerr, c.parseMinFree(f)); err != nil {
		return repoConfig{}, err
	}
	c.fsync, c.perObjectFsync = fsync, perObject
	if c.verity, err = wantedVerity(f); err != nil {
		return repoConfig{}, err
	}
	if text, ok := f.Value("core", "lock-timeout-secs"); ok {
		seconds, err := strconv.Atoi(text)
		if err != nil {
			return repoConfig{}, fmt.Errorf("lock-timeout-secs=%s: %w", text, err)
		}
		c.lockTimeout = time.Duration(seconds) * time.Second
	}
	return c, nil
}

// boolean returns a value as GLib does (g_key_file_get_boolean).
func boolean(value string, missing bool) (bool, error) {
	switch value {
	case "":
		return missing, nil
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", value)
}

// parseMinFree reads how much space stays free, as libostree does (reload_core_config in its ostree-repo.c). A size
// wins over a percentage, unless it is 0, and a number that is too large is the largest one.
func (c *repoConfig) parseMinFree(f KeyFile) error {
	text, sized := f.Value("core", "min-free-space-size")
	if sized {
		bytes, err := sizeIn(text)
		if err != nil {
			return fmt.Errorf("min-free-space-size=%s: %w", text, err)
		}
		c.minFreePercent, c.minFreeBytes = 0, bytes
	}
	percent, ok := f.Value("core", "min-free-space-percent")
	if !ok {
		return nil
	}
	if strings.Trim(percent, "0123456789") != "" {
		return fmt.Errorf("min-free-space-percent=%s: not a number", percent)
	}
	n, _ := strconv.ParseUint(cmp.Or(percent, "0"), 10, 64) // the largest number if it is out of range
	if n > 99 {
		return fmt.Errorf("min-free-space-percent=%s: not a percentage", percent)
	}
	if c.minFreeBytes == 0 {
		c.minFreePercent = n
	}
	return nil
}

// sizeIn returns the bytes of a size as libostree writes it: a whole number of MB, GB or TB, which are powers of 2. libostree
// accepts any number of MB that 64 bits can hold, and then fails to write; as that many bytes, there is never enough space.
func sizeIn(text string) (uint64, error) {
	digits := strings.TrimRight(text, "MGTB")
	shift, known := map[string]uint{"MB": 20, "GB": 30, "TB": 40}[text[len(digits):]]
	if !known || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, errors.New("it has to be as 123MB, 123GB or 123TB")
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if n > math.MaxUint64>>(shift-20) || err != nil && shift > 20 {
		return 0, errors.New("it is too large")
	}
	if n > math.MaxUint64>>shift {
		return math.MaxUint64, nil
	}
	return n << shift, nil
}

func (r *Repo) objectPath(n ObjectName) string { return filepath.Join(r.path, "objects", n.path()) }

// FileObject returns the path of the object of a regular file or a symbolic link, which has the attributes of that.
func (r *Repo) FileObject(file Checksum) string { return r.objectPath(ObjectName{file, File}) }

// Has reports whether the repository has an object.
func (r *Repo) Has(n ObjectName) (bool, error) {
	_, err := os.Lstat(r.objectPath(n))
	return err == nil, unlessMissing(err, r.objectPath(n))
}

// HasPartial reports whether a commit is marked as partial.
func (r *Repo) HasPartial(c Checksum) bool {
	_, err := os.Lstat(r.partialPath(c))
	return err == nil
}

func (r *Repo) partialPath(c Checksum) string {
	return filepath.Join(r.path, "state", c.String()+".commitpartial")
}
