package osimage

import (
	"errors"
	"io/fs"
	"sync"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
)

// errNotYet says that the file that tells is not there yet.
var errNotYet = errors.New("not yet fetched")

// accept asks whether the host can boot a commit of this import. It is asked before a
// ref is set, so that nothing is left of a commit that is refused but whole layers. told
// is false if that is not known yet.
func (i *importer) accept(commit ostree.Checksum) (told bool, err error) {
	setup, err := ostree.ReadPrepareRoot(func(path string) ([]byte, error) {
		text, err := i.target.ReadFile(commit, path)
		if _, missing := errors.AsType[*fs.PathError](err); missing && errors.Is(err, fs.ErrNotExist) {
			return nil, errNotYet // an object; a commit without the file is no such error
		}
		return text, err
	})
	switch {
	case errors.Is(err, errNotYet):
		return false, nil
	case errors.Is(err, ostree.ErrPrepareRoot):
		return true, fault.New(fault.Refused, "the image would not boot: %w", err).
			WithHint("correct the image's /usr/lib/ostree/prepare-root.conf, or /etc/ostree/prepare-root.conf (ostree-prepare-root(1))")
	case err != nil:
		return false, err
	}
	i.result.Composefs = setup.Demands().Composefs
	if i.Accept == nil {
		return true, nil
	}
	return true, i.Accept(setup)
}

// acceptEarly asks as soon as the layers that are there tell of the encapsulated
// commit, so that the others need not be fetched. Derived layers might still say
// otherwise.
func (i *importer) acceptEarly(base *known) (err error) {
	base.mu.Lock()
	defer base.mu.Unlock()
	if base.told || base.commit == (ostree.Checksum{}) || i.Derived > 0 {
		return nil
	}
	if base.told, err = i.accept(base.commit); err != nil {
		return refusal{err}
	}
	return nil
}

// known is the encapsulated commit; zero until its layer was read.
type known struct {
	mu     sync.Mutex
	commit ostree.Checksum
	told   bool // how its root is mounted is known, and accepted
}

func (k *known) set(commit ostree.Checksum) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.commit = commit
}

// refusal is an error about the image and not the layer that told.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }
