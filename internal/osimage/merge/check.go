package merge

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
)

// check returns an error for a tree that cannot be deployed or booted.
func (t *Tree) check() error {
	for _, check := range []func() error{t.checkEtc, t.checkKernel, t.checkRelease, t.checkComposefs} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkEtc requires that the defaults of /etc are a directory, if there are any.
func (t *Tree) checkEtc() error {
	f, err := t.lookUp("usr/etc")
	if err == nil && f != nil {
		err = imagefault.Damaged("/usr/etc, or /etc of a layer, is a file or a link, not a directory")
	}
	return err
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
			there, err := t.bootFile(path.Join(modulesDir, release, "vmlinuz"))
			if err != nil {
				return err
			}
			if there {
				kernels = append(kernels, release)
				if _, err := t.bootFile(path.Join(modulesDir, release, "initramfs.img")); err != nil {
					return err
				}
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

// bootFile reports whether there is a file that libostree copies to /boot. A link must lead to a file
// of the tree: libostree would follow it into the running system, or fail.
func (t *Tree) bootFile(at string) (bool, error) {
	f, err := t.lookUp(at)
	if err != nil || f == nil {
		return false, err
	}
	_, to, err := t.follow(at)
	if err == nil && to == nil {
		err = imagefault.Damaged("/%s is a link that leads to no file of the image", at)
	}
	return true, err
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
	const lacks = "the image has no PRETTY_NAME or ID in /usr/lib/os-release, from which its boot entry gets its name"
	if t.Stored {
		t.notes.add("warning: %s: no host will be able to boot it", lacks)
		return nil
	}
	return fault.New(fault.Refused, lacks).WithHint("let the image's build keep or make /usr/lib/os-release")
}

// maxLinks is how many symbolic links are followed for one file; Linux has the same limit.
const maxLinks = 40

// readLinked is like read, but follows symbolic links within the tree.
func (t *Tree) readLinked(at string) ([]byte, error) {
	at, f, err := t.follow(at)
	if err != nil || f == nil {
		return nil, err
	}
	return t.read(at)
}

// follow follows symbolic links within the tree, and returns the file to which they lead, with its
// path, or nil. An absolute link counts as a missing file: libostree would follow it into the
// running system.
func (t *Tree) follow(at string) (string, *file, error) {
	for range maxLinks {
		f, err := t.lookUp(at)
		if err != nil || f == nil {
			return at, nil, err
		}
		stat, err := t.objects.StatFile(f.object)
		if err != nil || !isLink(stat.Mode) {
			return at, f, err
		}
		target, err := t.objects.ReadLink(f.object)
		if err != nil || path.IsAbs(target) {
			return at, nil, err
		}
		at = path.Join(path.Dir(at), target)
	}
	return at, nil, nil
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
