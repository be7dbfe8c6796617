package hostimages

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/osimage/imageref"
)

// BoundStorage is bootc's storage of application images, in the format of containers-storage, relative
// to the physical root of the host.
const BoundStorage = "ostree/bootc/storage"

// maxIndex is the maximum size of the storage's list of images, in bytes. An image has less than 4 KiB.
const maxIndex = 16 << 20

// storedImage is an image in the storage's list (go.podman.io/storage, type Image).
type storedImage struct {
	Digest  string            `json:"digest"`
	Names   []string          `json:"names"`
	Digests map[string]string `json:"big-data-digests"` // of the manifests, among others
}

// MissingBound returns the images that are not in the storage below a physical root; all of them, if there
// is no storage.
func MissingBound(physical string, images []imageref.Reference) ([]imageref.Reference, error) {
	have, err := listStored(filepath.Join(physical, BoundStorage, "overlay-images/images.json"))
	if err != nil {
		return nil, fmt.Errorf("cannot look for application images in bootc's storage: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(images), func(ref imageref.Reference) bool {
		return slices.ContainsFunc(have, func(s storedImage) bool { return s.is(ref) })
	}), nil
}

// listStored reads the list of images; there may be none.
func listStored(path string) (images []storedImage, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxIndex+1))
	if err == nil {
		err = guard.NewBudget(maxIndex, "bytes").Take(int64(len(text)))
	}
	if err == nil {
		err = json.Unmarshal(text, &images)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return images, err
}

// is reports whether a stored image is what podman uses for a reference: it has that name, or its
// repository's name and the digest.
func (s storedImage) is(ref imageref.Reference) bool {
	return slices.ContainsFunc(s.Names, func(text string) bool {
		name, err := imageref.Parse(text)
		if err != nil || name.Name() != ref.Name() {
			return false
		}
		if digest := ref.Digest(); digest != "" {
			return name.Digest() == digest || s.Digest == digest || s.hasManifest(digest)
		}
		return name.Tag() == ref.Tag()
	})
}

func (s storedImage) hasManifest(digest string) bool {
	for name, has := range s.Digests {
		if has == digest && (name == "manifest" || name == "manifest-"+digest) {
			return true
		}
	}
	return false
}
