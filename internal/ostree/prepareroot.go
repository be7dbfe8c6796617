package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree/keyfile"
)

// prepareRootPaths are the paths of prepare-root.conf in a commit, the one that counts
// first. ostree-prepare-root reads both with GLib, which forgets the first file when it
// reads the second, so they are never combined.
func prepareRootPaths() []string {
	return []string{"usr/etc/ostree/prepare-root.conf", "usr/lib/ostree/prepare-root.conf"}
}

// ComposefsArgument is the kernel argument that goes before composefs.enabled, since
// libostree 2024.7.
const ComposefsArgument = "ostree.prepare-root.composefs"

// ComposefsFile is the composefs image in a deployment's root directory. libostree makes it
// when it checks the commit out.
const ComposefsFile = ".ostree.cfs"

// PrepareRoot is how a system's initramfs mounts its root (ostree-prepare-root(1)). The
// initramfs has its own copy of prepare-root.conf; libostree reads the commit's when it
// makes a deployment, and so does this program.
type PrepareRoot struct {
	composefs     string // enabled: "no", "maybe", "yes", "verity" or "signed"
	rootTransient bool
	etcTransient  bool
}

// Demands are what a deployment must have to boot, and what it must do without.
type Demands struct {
	Composefs    bool // ComposefsFile
	Verity       bool // fs-verity on it, and on each file's object
	TransientEtc bool // /etc has only the commit's files, whatever the deployment has there
}

// ErrPrepareRoot is the error of a prepare-root.conf that ostree-prepare-root does not accept.
// Such a system does not boot.
var ErrPrepareRoot = errors.New("cannot understand prepare-root.conf")

// ParsePrepareRoot reads prepare-root.conf. The error is an ErrPrepareRoot.
func ParsePrepareRoot(text []byte) (PrepareRoot, error) {
	f, err := keyfile.Parse(text)
	if err != nil {
		return PrepareRoot{}, fmt.Errorf("%w: %w", ErrPrepareRoot, err)
	}
	p := PrepareRoot{composefs: "no"}
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

// composefsState is the value of composefs.enabled with one word for each boolean.
func composefsState(value string) (string, error) {
	if slices.Contains([]string{"maybe", "verity", "signed"}, value) {
		return value, nil
	}
	on, err := parseBool(value)
	return map[bool]string{true: "yes", false: "no"}[on], err
}

// parseBool reads a boolean as ostree does (ot-keyfile-utils.c).
func parseBool(value string) (bool, error) {
	switch value {
	case "yes", "true", "1":
		return true, nil
	case "no", "false", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is no value for it", value)
}

// SeesRoot reports whether the system sees other top-level directories of the commit than
// usr (ostree-ext's overlayfs_enabled_in_config).
func (p PrepareRoot) SeesRoot() bool { return p.rootTransient || p.composefs != "no" }

// Signed reports whether only a signed commit boots.
func (p PrepareRoot) Signed() bool { return p.composefs == "signed" }

// Demands are those of the configuration and of kernel arguments, given as the values of
// ComposefsArgument. An argument that lifts a demand does not count, since an initramfs
// from before libostree 2024.7 ignores it.
func (p PrepareRoot) Demands(arguments ...string) Demands {
	// A transient root without composefs is an error since libostree 2024.3.
	d := Demands{Composefs: p.rootTransient, TransientEtc: p.etcTransient}
	for _, value := range append([]string{p.composefs}, arguments...) {
		state, err := composefsState(value)
		if err != nil {
			continue // a malformed argument is ignored
		}
		d.Verity = d.Verity || state == "verity" || state == "signed"
		d.Composefs = d.Composefs || d.Verity || state == "yes"
	}
	return d
}

// ReadPrepareRoot reads a commit's prepare-root.conf. read reads a file of the commit; for
// one that does not exist it returns an fs.ErrNotExist.
func ReadPrepareRoot(read func(path string) ([]byte, error)) (PrepareRoot, error) {
	for _, path := range prepareRootPaths() {
		text, err := read(path)
		// A symbolic link is skipped: it could only lead to the other file.
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) {
			continue
		}
		if err != nil {
			return PrepareRoot{}, err
		}
		return ParsePrepareRoot(text)
	}
	return ParsePrepareRoot(nil)
}
