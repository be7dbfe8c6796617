package ostree

import (
	"errors"
	"fmt"
	"slices"
)

// prepareRootPaths returns the paths of prepare-root.conf in a commit, in order of
// precedence. ostree-prepare-root loads both into one GKeyFile. Loading a file replaces what
// was loaded before, so the files are never merged.
func prepareRootPaths() []string {
	return []string{"usr/etc/ostree/prepare-root.conf", "usr/lib/ostree/prepare-root.conf"}
}

// ComposefsArgument is the kernel argument that overrides composefs.enabled since libostree
// 2024.7.
const ComposefsArgument = "ostree.prepare-root.composefs"

// ComposefsFile is the composefs image in a deployment's root directory. libostree creates it
// when it checks out the commit.
const ComposefsFile = ".ostree.cfs"

// PrepareRoot describes how a system's initramfs mounts the root file system
// (ostree-prepare-root(1)). The initramfs contains a copy of prepare-root.conf. When
// libostree makes a deployment it reads the file in the commit, and so does this program.
type PrepareRoot struct {
	composefs     string // composefs.enabled: "no", "maybe", "yes", "verity" or "signed"
	rootTransient bool
	etcTransient  bool
	keyPath       string // composefs.keypath: the public keys in the initramfs
}

// Demands lists what a deployment must have in order to boot, and whether its /etc is ignored.
type Demands struct {
	Composefs    bool // the deployment must have ComposefsFile
	Verity       bool // ComposefsFile and all file objects must have fs-verity
	Signed       bool // in addition, a signature must cover the digest of ComposefsFile: see SignedRoot
	TransientEtc bool // /etc has only the commit's files, not those in the deployment's /etc
}

// ErrPrepareRoot is the error for a prepare-root.conf that ostree-prepare-root does not accept.
// A system with such a file does not boot.
var ErrPrepareRoot = errors.New("cannot understand prepare-root.conf")

// ParsePrepareRoot parses prepare-root.conf. Errors are an ErrPrepareRoot.
func ParsePrepareRoot(text []byte) (PrepareRoot, error) {
	f, err := ParseKeyFile(text)
	if err != nil {
		return PrepareRoot{}, fmt.Errorf("%w: %w", ErrPrepareRoot, err)
	}
	p := PrepareRoot{composefs: "no", keyPath: rootKeyPath}
	if value, found := f.Value("composefs", "keypath"); found {
		p.keyPath = value
	}
	if value, found := f.Value("composefs", "enabled"); found {
		if p.composefs, err = composefsState(value); err != nil {
			return PrepareRoot{}, fmt.Errorf("%w: composefs.enabled: %w", ErrPrepareRoot, err)
		}
	}
	var readOnly bool
	for _, setting := range []struct {
		group, key string
		to         *bool
	}{{"root", "transient", &p.rootTransient}, {"root", "transient-ro", &readOnly}, {"etc", "transient", &p.etcTransient}} {
		value, found := f.Value(setting.group, setting.key)
		if !found {
			continue
		}
		if *setting.to, err = parseBool(value); err != nil {
			return PrepareRoot{}, fmt.Errorf("%w: %s.%s: %w", ErrPrepareRoot, setting.group, setting.key, err)
		}
	}
	if p.rootTransient && readOnly {
		return PrepareRoot{}, fmt.Errorf("%w: it sets both root.transient and root.transient-ro", ErrPrepareRoot)
	}
	p.rootTransient = p.rootTransient || readOnly
	return p, nil
}

// composefsState normalizes a value of composefs.enabled: booleans become "yes" or "no".
func composefsState(value string) (string, error) {
	if slices.Contains([]string{"maybe", "verity", "signed"}, value) {
		return value, nil
	}
	on, err := parseBool(value)
	return map[bool]string{true: "yes", false: "no"}[on], err
}

// parseBool parses a boolean as ostree does (ot-keyfile-utils.c).
func parseBool(value string) (bool, error) {
	switch value {
	case "yes", "true", "1":
		return true, nil
	case "no", "false", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is no value for it", value)
}

// SeesRoot reports whether the booted system sees top-level directories of the commit other
// than usr (ostree-ext's overlayfs_enabled_in_config).
func (p PrepareRoot) SeesRoot() bool { return p.rootTransient || p.composefs != "no" }

// MountPoints returns the top-level directories that the commit must have, because the boot mounts onto them and cannot
// make them. ostree-prepare-root moves the physical root to sysroot, whatever the configuration
// (ostree-prepare-root.c). A root that is certainly an image of composefs is read-only, so that systemd creates nothing
// in it, neither when it leaves the initramfs (switch-root.c) nor for var.mount. Elsewhere it may create what is
// missing.
func (p PrepareRoot) MountPoints() []string {
	if p.rootTransient || p.composefs == "no" || p.composefs == "maybe" {
		return []string{"sysroot"}
	}
	return []string{"sysroot", "dev", "proc", "run", "sys", "var"}
}

// Signed reports whether the system boots only if the commit is signed.
func (p PrepareRoot) Signed() bool { return p.composefs == "signed" }

// Demands returns the demands of the configuration and of kernel arguments, given as values of
// ComposefsArgument. An argument can add demands but not remove them, because an initramfs
// with a libostree older than 2024.7 ignores it.
func (p PrepareRoot) Demands(arguments ...string) Demands {
	// Since libostree 2024.3 a transient root without composefs is an error.
	d := Demands{Composefs: p.rootTransient, TransientEtc: p.etcTransient}
	for _, value := range append([]string{p.composefs}, arguments...) {
		state, err := composefsState(value)
		if err != nil {
			continue // a malformed argument is ignored
		}
		d.Signed = d.Signed || state == "signed"
		d.Verity = d.Verity || d.Signed || state == "verity"
		d.Composefs = d.Composefs || d.Verity || state == "yes"
	}
	return d
}

// ReadPrepareRoot reads a commit's prepare-root.conf as the commit's system sees it, through symbolic links,
// or returns the defaults if there is none. look finds an entry of the commit without following links.
func ReadPrepareRoot(look func(name string) (Found, bool, error)) (PrepareRoot, error) {
	for _, name := range prepareRootPaths() {
		file, exists, err := Resolve(name, look)
		if err == nil && exists && file.IsDir {
			err = &UnresolvedError{"it is a directory"}
		}
		if _, unresolved := errors.AsType[*UnresolvedError](err); unresolved {
			err = fmt.Errorf("%w: /%s: %w", ErrPrepareRoot, name, err)
		}
		if err != nil {
			return PrepareRoot{}, err
		}
		if exists {
			return ParsePrepareRoot(file.File)
		}
	}
	return ParsePrepareRoot(nil)
}
