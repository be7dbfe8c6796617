package merge

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
)

// check returns an error for a tree that cannot be deployed or booted.
func (t *Tree) check() error {
	for _, check := range []func() error{t.checkKernel, t.checkRelease, t.checkComposefs} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// modulesDir has one directory per kernel.
const modulesDir = "usr/lib/modules"

// checkKernel requires that the tree has exactly one kernel. If there are several, libostree
// takes the first that it finds.
func (t *Tree) checkKernel() error {
	modules, err := t.lookUpDir(modulesDir)
	if err != nil {
		return err
	}
	var kernels []string
	if modules != nil {
		for _, release := range slices.Sorted(maps.Keys(modules.dirs)) {
			if f, err := t.lookUp(path.Join(modulesDir, release, "vmlinuz")); err != nil {
				return err
			} else if f != nil {
				kernels = append(kernels, release)
			}
		}
	}
	switch len(kernels) {
	case 1:
		return nil
	case 0:
		return fault.New(fault.Refused, "the image has no kernel: there is no /%s/*/vmlinuz", modulesDir).
			WithHint("use an image that is made for hosts; one for containers has no kernel")
	}
	return fault.New(fault.Refused, "the image has %d kernels (%s), and which of them boots is not said", len(kernels), strings.Join(kernels, ", ")).
		WithHint("remove the others in the image's build, as dnf remove kernel-core-VERSION does")
}

// checkRelease requires an os-release file with the name that libostree gives to the boot
// entry (ostree-sysroot-deploy.c, install_deployment_kernel). Only the first of the two files
// that can be read counts, and a key must be at the start of its line.
func (t *Tree) checkRelease() error {
	for _, at := range []string{"usr/lib/os-release", "usr/etc/os-release"} {
		text, err := t.readLinked(at)
		if err != nil {
			return err
		}
		if text == nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if key, _, ok := strings.Cut(line, "="); ok && (key == "PRETTY_NAME" || key == "ID") {
				return nil
			}
		}
		break
	}
	return fault.New(fault.Refused, "the image has no PRETTY_NAME or ID in /usr/lib/os-release, which a boot entry is named by").
		WithHint("let the image's build keep or make /usr/lib/os-release")
}

// maxLinks is how many symbolic links are followed for one file; Linux has the same limit.
const maxLinks = 40

// readLinked is like read, but follows symbolic links within the tree. An absolute link counts
// as a missing file: libostree would follow it into the running system.
func (t *Tree) readLinked(at string) ([]byte, error) {
	for range maxLinks {
		f, err := t.lookUp(at)
		if err != nil || f == nil {
			return nil, err
		}
		stat, err := t.objects.StatFile(f.object)
		if err != nil {
			return nil, err
		}
		if !isLink(stat.Mode) {
			return t.read(at)
		}
		target, err := t.objects.ReadLink(f.object)
		if err != nil || path.IsAbs(target) {
			return nil, err
		}
		at = path.Join(path.Dir(at), target)
	}
	return nil, nil
}

// checkComposefs returns an error for a tree that boots only with a signature: the merged tree
// has none.
func (t *Tree) checkComposefs() error {
	setup, err := t.prepareRoot()
	if errors.Is(err, ostree.ErrPrepareRoot) || err == nil && !setup.Signed() {
		return nil // the importer refuses an invalid file (Opened.Accept)
	}
	if err != nil {
		return err
	}
	return fault.New(fault.Refused, "the image boots only what is signed (composefs.enabled=signed in /usr/lib/ostree/prepare-root.conf), but has layers that its signature does not cover").
		WithHint("use the image that it was built from, or one whose prepare-root.conf does not demand a signature")
}
