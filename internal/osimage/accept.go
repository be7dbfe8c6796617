package osimage

import (
	"errors"
	"io/fs"
	"sync"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
)

// accept calls Opened.Accept to check that the host can boot a commit of this import. It is
// called before a ref to the commit is set, so that a refused image leaves only complete
// layers behind. decided is false if prepare-root.conf is not fetched yet.
func (i *importer) accept(commit ostree.Checksum) (decided bool, err error) {
	setup, err := i.target.PrepareRoot(commit)
	switch {
	case errors.Is(err, fs.ErrNotExist): // an object, for a path that the commit does not have is no error
		return false, nil
	case errors.Is(err, ostree.ErrPrepareRoot):
		return true, fault.New(fault.Refused, "the image would not boot: %w", err).
			WithHint("correct the image's /usr/lib/ostree/prepare-root.conf, or /etc/ostree/prepare-root.conf (ostree-prepare-root(1))")
	case err != nil:
		return false, err
	}
	i.result.Composefs = setup.Demands().Composefs
	err = CheckMountPoints(commit, setup, i.target.Objects)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err = i.unlessStored(err); err != nil {
		return true, err
	}
	if i.Accept == nil {
		return true, nil
	}
	if setup.Signed() {
		if checked, err := i.checkSigned(commit, setup); err != nil || !checked {
			return checked, err
		}
	}
	return true, i.Accept(setup)
}

// bootable calls CheckBootFiles for a commit of this import, as accept is called. decided is false if a file for
// that is not fetched yet.
func (i *importer) bootable(commit ostree.Checksum) (decided bool, err error) {
	err = CheckBootFiles(commit, i.target.Objects)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return true, i.unlessStored(err)
}

// unlessStored returns an error about an image that would not boot, or notes it as a warning if no host is going
// to boot the image now.
func (i *importer) unlessStored(err error) error {
	if i.Accept == nil && fault.KindOf(err) == fault.Refused {
		i.result.Notes, err = append(i.result.Notes, "warning: "+err.Error()), nil
	}
	return err
}

// checkSigned returns an error unless a key of the image has signed a commit of this import, as its system
// demands. checked is false if the files for that are not fetched yet.
func (i *importer) checkSigned(commit ostree.Checksum, setup ostree.PrepareRoot) (checked bool, err error) {
	_, err = i.target.SignedRoot(commit, setup, i.Format.Native())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if _, not := errors.AsType[*ostree.UnsignedError](err); not {
		err = fault.New(fault.Refused, "the image would not boot: %w", err).
			WithHint("sign the commit in the image's build (ostree commit --generate-composefs-metadata, ostree sign), with the public key in /etc/ostree/initramfs-root-binding.key of image and initramfs; or use an image with composefs.enabled=verity in /usr/lib/ostree/prepare-root.conf")
	}
	return true, err
}

// acceptEarly calls accept and bootable as soon as the encapsulated commit and the files for them are
// fetched, so that the rest of a refused image is not downloaded. It does nothing for an
// image with derived layers, because they may replace the files.
func (i *importer) acceptEarly(base *baseCommit) (err error) {
	base.mu.Lock()
	defer base.mu.Unlock()
	if base.commit == (ostree.Checksum{}) || i.Derived > 0 {
		return nil
	}
	if !base.accepted {
		base.accepted, err = i.accept(base.commit)
	}
	if err == nil && !base.bootable {
		base.bootable, err = i.bootable(base.commit)
	}
	if err != nil {
		return refusal{err}
	}
	return nil
}

// early has the checks that need only some files of the image.
func (i *importer) early(base *baseCommit) error {
	if err := i.acceptEarly(base); err != nil {
		return err
	}
	return i.bindEarly(base)
}

// baseCommit is the encapsulated commit; zero until its layer has been read.
type baseCommit struct {
	mu       sync.Mutex
	commit   ostree.Checksum
	accepted bool // importer.accept has decided
	bootable bool // importer.bootable has decided
}

func (b *baseCommit) set(commit ostree.Checksum) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.commit = commit
}

// known returns the encapsulated commit, or zero.
func (b *baseCommit) known() ostree.Checksum {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.commit
}

// refusal is an error about the whole image, not about the layer that was read last.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }
