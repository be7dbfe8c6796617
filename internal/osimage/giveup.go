package osimage

import (
	"encoding/json"
	"errors"
	"slices"

	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
)

// Keep sets the refs of an image that was imported as a commit, where somebody has removed
// them: the one that protects the commit from pruning, and, unless ref is zero, the one by
// which rpm-ostree and bootc know an ostree-native image.
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

// Release removes the refs of an image that was imported as a commit, and those of its layers
// that no other image has. Of one that is deployed it only removes the ref that has protected
// it until then. The objects go when the repository is pruned.
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

// layersOf are the digests of the layers of an ostree-native image, by the commit that it was
// imported as; none if it is no such image.
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
