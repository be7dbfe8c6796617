package osimage

import (
	"encoding/json"
	"errors"
	"slices"

	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
)

// Keep restores the refs of an image that was imported as a commit, if they were removed: the
// ref that protects the commit from pruning and, unless ref is zero, the ref by which
// rpm-ostree and bootc find an ostree-native image.
func Keep(repo *ostree.Repo, commit ostree.Checksum, ref imageref.Reference) error {
	refs := []string{KeepAliveRef(commit.String())}
	if ref != (imageref.Reference{}) {
		refs = append(refs, imageRef(ref))
	}
	refs = slices.DeleteFunc(refs, func(name string) bool {
		to, err := repo.ResolveRef(name)
		return err == nil && to == commit
	})
	if len(refs) == 0 {
		return nil
	}
	return repo.SetRefs(commit, refs...)
}

// Release removes the refs of an image that was imported as a commit, and the refs of layers
// that no other image uses. If the commit is deployed, Release removes only the ref that
// protected it until it was deployed. Pruning the repository then deletes the objects.
func Release(repo *ostree.Repo, commit ostree.Checksum, deployed ...ostree.Checksum) error {
	if err := repo.DeleteRef(KeepAliveRef(commit.String())); err != nil || slices.Contains(deployed, commit) {
		return err
	}
	images, err := repo.Refs(imageRefs)
	if err != nil {
		return err
	}
	kept, err := repo.Refs(KeepAliveRef(""))
	if err != nil {
		return err
	}
	others := slices.Clone(deployed)
	var gone []string
	for ref, to := range images {
		if to == commit {
			gone = append(gone, ref)
		} else {
			others = append(others, to)
		}
	}
	for _, to := range kept {
		others = append(others, to)
	}
	needed := map[string]bool{}
	for _, other := range others {
		for _, digest := range layersOf(repo, other) {
			needed[digest] = true
		}
	}
	for _, digest := range layersOf(repo, commit) {
		if !needed[digest] {
			gone = append(gone, blobRef(digest))
		}
	}
	for _, ref := range gone {
		err = errors.Join(err, repo.DeleteRef(ref))
	}
	return err
}

// layersOf returns the digests of the layers of the ostree-native image that was imported as
// a commit. It returns nil if the commit is not a merge commit.
func layersOf(repo *ostree.Repo, commit ostree.Checksum) (digests []string) {
	info, err := repo.LoadCommit(commit)
	if err != nil {
		return nil
	}
	text, _ := info.Metadata(manifestKey).(string)
	var manifest imgspec.Manifest
	if json.Unmarshal([]byte(text), &manifest) != nil {
		return nil
	}
	for _, layer := range manifest.Layers {
		digests = append(digests, layer.Digest.String())
	}
	return digests
}
