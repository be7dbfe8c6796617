package osimage

import (
	"errors"
	"io/fs"
	"sync"

	"machine-pivot/internal/ostree"
)

// binding is what an import knows about the application images that its image binds.
type binding struct {
	mu      sync.Mutex
	decided bool // Opened.Bind was called, or there is none
	images  BoundImages
}

// bind calls Opened.Bind with the application images that a commit of this import binds, unless that has
// been done. decided is false if files that name them are not fetched yet. The check comes as soon as these files are
// there, and before a ref is set.
func (i *importer) bind(commit ostree.Checksum) (decided bool, err error) {
	i.binds.mu.Lock()
	defer i.binds.mu.Unlock()
	return i.bindLocked(commit)
}

func (i *importer) bindLocked(commit ostree.Checksum) (decided bool, err error) {
	if i.binds.decided {
		return true, nil
	}
	images, err := ReadBound(i.target.Objects, commit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	if i.Bind != nil {
		if err := i.Bind(images, i.progress.outstanding()+i.Besides); err != nil {
			return false, err
		}
	}
	i.binds.images, i.binds.decided = images, true
	return true, nil
}

// bindEarly calls bind as soon as the encapsulated commit and the files that name application images are
// fetched, so that the rest of a refused image is not downloaded. It does nothing for an image with
// derived layers, because they may replace the files. Bind may use the network for a while: other
// layers do not wait for its answer, but the import ends only with it.
func (i *importer) bindEarly(base *baseCommit) error {
	commit := base.known()
	if commit == (ostree.Checksum{}) || i.Derived > 0 || !i.binds.mu.TryLock() {
		return nil
	}
	defer i.binds.mu.Unlock()
	if _, err := i.bindLocked(commit); err != nil {
		return refusal{err}
	}
	return nil
}

// reportBound adds the application images that the image binds to the result, and what is wrong with them
// as a note.
func (i *importer) reportBound() {
	for _, ref := range i.binds.images.References {
		i.result.BoundImages = append(i.result.BoundImages, ref.String())
	}
	if wrong := i.binds.images.Err(); wrong != nil {
		i.result.Notes = append(i.result.Notes, "warning: "+wrong.Error())
	}
}
