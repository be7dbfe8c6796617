package osimage

import (
	"encoding/json"
	"errors"
	"maps"
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

// Remove removes the refs of an image that was imported as a commit, and the refs of layers
// that no other image uses. If the commit is deployed, Remove removes only the ref that
// protected it until it was deployed. Pruning the repository then deletes the objects.
func Remove(repo *ostree.Repo, commit ostree.Checksum, deployed ...ostree.Checksum) error {
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
	needed := layerRefs(repo, others)
	for ref := range layerRefs(repo, []ostree.Checksum{commit}) {
		if !needed[ref] {
			gone = append(gone, ref)
		}
	}
	return deleteRefs(repo, gone)
}

// RemoveUndeployed removes the refs of the ostree-native images that no deployment uses, and
// those of layers that no other image uses, as rpm-ostree and bootc do after an update. It keeps
// imported images that are to be deployed later, which a KeepAliveRef protects. It reports
// whether it removed any refs: pruning the repository then deletes objects.
func RemoveUndeployed(repo *ostree.Repo, deployed ...ostree.Checksum) (removed bool, err error) {
	kept, err := repo.Refs(KeepAliveRef(""))
	if err != nil {
		return false, err
	}
	needed := slices.AppendSeq(slices.Clone(deployed), maps.Values(kept))
	images, err := repo.Refs(imageRefs)
	if err != nil {
		return false, err
	}
	var gone []string
	for ref, commit := range images {
		if !slices.Contains(needed, commit) {
			gone = append(gone, ref)
		}
	}
	if len(gone) == 0 {
		return false, nil
	}
	layers, err := repo.Refs(blobRefs)
	if err != nil {
		return false, err
	}
	neededLayers := layerRefs(repo, needed)
	for ref := range layers {
		if !neededLayers[ref] {
			gone = append(gone, ref)
		}
	}
	return true, deleteRefs(repo, gone)
}

// deleteRefs deletes refs in order: an image's before those of its layers, because an image with
// a ref must have all of them.
func deleteRefs(repo *ostree.Repo, refs []string) (err error) {
	for _, ref := range refs {
		err = errors.Join(err, repo.DeleteRef(ref))
	}
	return err
}

// layerRefs returns the refs of the layers of the images that were imported as commits.
func layerRefs(repo *ostree.Repo, commits []ostree.Checksum) map[string]bool {
	refs := map[string]bool{}
	for _, commit := range commits {
		for _, digest := range layersOf(repo, commit) {
			refs[blobRef(digest)] = true
		}
	}
	return refs
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
