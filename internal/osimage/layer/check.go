package layer

import (
	"errors"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
)

// check returns an error for a tree that cannot be deployed or booted for what the layers have changed. What
// every image must have is checked for the commit (package osimage).
func (t *Tree) check() error {
	if err := t.checkEtc(); err != nil {
		return err
	}
	return t.checkComposefs()
}

// checkEtc requires that the defaults of /etc are a directory, if there are any.
func (t *Tree) checkEtc() error {
	f, err := t.lookUp("usr/etc")
	if err == nil && f != nil {
		err = imagefault.Misbuilt("/usr/etc, or /etc of a layer, is a file or a link, not a directory")
	}
	return err
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
		WithHint("use the image that it was built from, or one that does not demand a signature in its prepare-root.conf")
}
