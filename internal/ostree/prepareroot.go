package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree/keyfile"
)

// prepareRootPaths are where a commit has prepare-root.conf. ostree-prepare-root reads
// one after the other, and GLib forgets the first when it reads the second.
func prepareRootPaths() []string {
	return []string{"usr/etc/ostree/prepare-root.conf", "usr/lib/ostree/prepare-root.conf"}
}

// ComposefsArgument is the kernel argument that goes before composefs.enabled, since
// libostree 2024.7.
const ComposefsArgument = "ostree.prepare-root.composefs"

// ComposefsFile is the image of composefs in a deployment's root directory, which
// libostree makes when it checks the commit out.
const ComposefsFile = ".ostree.cfs"

// PrepareRoot is how a system's initramfs mounts its root (ostree-prepare-root(1)). It
// reads its own copy of prepare-root.conf; libostree goes by the commit's when it makes
// a deployment, and so does this program.
type PrepareRoot struct {
	composefs     string // enabled: "no", "maybe", "yes", "verity" or "signed"
	rootTransient bool
	etcTransient  bool
}

// Demands are what a deployment must have, or must do without, to boot.
type Demands struct {
	Composefs    bool // ComposefsFile
	Verity       bool // fs-verity on it, and on each file's object
	TransientEtc bool // nothing in /etc that is not in the commit is seen
}

// ErrPrepareRoot says that a prepare-root.conf cannot be understood: no system boots
// with it.
var ErrPrepareRoot = errors.New("cannot understand prepare-root.conf")

// ParsePrepareRoot reads prepare-root.conf. What ostree-prepare-root does not
// understand, and stops for, is an ErrPrepareRoot.
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

// composefsState is one word for each state.
func composefsState(value string) (string, error) {
	if slices.Contains([]string{"maybe", "verity", "signed"}, value) {
		return value, nil
	}
	on, err := parseBool(value)
	return map[bool]string{true: "yes", false: "no"}[on], err
}

// parseBool is ostree's own (ot-keyfile-utils.c).
func parseBool(value string) (bool, error) {
	switch value {
	case "yes", "true", "1":
		return true, nil
	case "no", "false", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is no value for it", value)
}

// SeesRoot reports whether the system sees what lies beside usr at the top of the
// commit (ostree-ext's overlayfs_enabled_in_config).
func (p PrepareRoot) SeesRoot() bool { return p.rootTransient || p.composefs != "no" }

// Signed reports whether only a signed commit boots.
func (p PrepareRoot) Signed() bool { return p.composefs == "signed" }

// Demands are those of the configuration together with the values of
// ComposefsArgument. An argument that lifts a demand does not count: an initramfs of
// before libostree 2024.7 does not know it.
func (p PrepareRoot) Demands(arguments ...string) Demands {
	// A transient root without composefs is an error since libostree 2024.3.
	d := Demands{Composefs: p.rootTransient, TransientEtc: p.etcTransient}
	for _, value := range append([]string{p.composefs}, arguments...) {
		state, err := composefsState(value)
		if err != nil {
			continue // an argument: the kernel's line is its user's
		}
		d.Verity = d.Verity || state == "verity" || state == "signed"
		d.Composefs = d.Composefs || d.Verity || state == "yes"
	}
	return d
}

// ReadPrepareRoot finds prepare-root.conf among the files of a commit. For a file that
// is not there read returns an fs.ErrNotExist.
func ReadPrepareRoot(read func(path string) ([]byte, error)) (PrepareRoot, error) {
	for _, path := range prepareRootPaths() {
		text, err := read(path)
		// A link is not followed: it would be one to the other file.
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
