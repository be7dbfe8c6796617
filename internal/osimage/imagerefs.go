package osimage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/osimage/source"
	"machine-pivot/internal/ostree"
)

// Keep completes the refs of an image that is going to be deployed, where other programs removed them or the import
// left them out (see partRef). One ref protects the commit from pruning. By the others, unless ref is zero, rpm-ostree
// and bootc find an ostree-native image and its layers. An image without them could be booted, but these programs fail
// on the host from then on. From then on they are the only refs of its layers (see dropParts). The error is a LostError
// if the commit of a layer is not known any more; then nothing is restored.
func Keep(ctx context.Context, repo *ostree.Repo, commit ostree.Checksum, ref imageref.Reference) error {
	missing, err := missingRefs(ctx, repo, commit, ref)
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if err == nil {
			err = repo.SetRefs(missing[name], name)
		}
	}
	if err == nil {
		_, err = dropParts(repo)
	}
	return err
}

// Kept returns whether all refs are there that Keep restores, and a LostError if it could not
// restore them. It writes nothing.
func Kept(ctx context.Context, repo *ostree.Repo, commit ostree.Checksum, ref imageref.Reference) (bool, error) {
	missing, err := missingRefs(ctx, repo, commit, ref)
	return err == nil && len(missing) == 0, err
}

// Name sets the ref by which rpm-ostree and bootc find the commit of an image under a name.
func Name(repo *ostree.Repo, commit ostree.Checksum, ref imageref.Reference) error {
	return repo.SetRefs(commit, imageRef(ref))
}

// LostError is the error for an image with layers that must be fetched again, although its commit is whole: what kept
// their objects together is gone.
type LostError struct {
	Layers []string // their digests
	Of     int      // number of layers of the image
}

func (e LostError) Error() string {
	return fmt.Sprintf("another program has removed %d of its %d layers, such as %s", len(e.Layers), e.Of, e.Layers[0])
}

// missingRefs returns the refs that Keep restores, with the commits to which they point.
func missingRefs(ctx context.Context, repo *ostree.Repo, commit ostree.Checksum, ref imageref.Reference) (map[string]ostree.Checksum, error) {
	missing := map[string]ostree.Checksum{KeepAliveRef(commit.String()): commit}
	if ref != (imageref.Reference{}) {
		missing[imageRef(ref)] = commit
	}
	maps.DeleteFunc(missing, func(name string, _ ostree.Checksum) bool {
		to, err := repo.ResolveRef(name)
		return err == nil && to == commit
	})
	layers := layersOf(repo, commit)
	base, without := baseAndWithoutRef(repo, commit)
	lost := LostError{Of: len(layers)}
	for n, l := range layers {
		first := ostree.Checksum{} // the commit that the layer's ref must point to; zero: any
		if n == 0 {
			first = base
		}
		if slices.Contains(without, l.Digest) {
			continue
		}
		if _, kept := keptAt(repo, blobRef(l.Digest), first); kept {
			continue
		}
		commit, kept := keptAt(repo, partRef(l), first)
		if !kept && (first == (ostree.Checksum{}) || repo.HasWhole(ctx, first) != nil) {
			lost.Layers = append(lost.Layers, l.Digest)
			continue
		}
		missing[blobRef(l.Digest)] = cmp.Or(commit, first)
	}
	if len(lost.Layers) > 0 {
		return nil, lost
	}
	return missing, nil
}

// keptAt returns the commit to which a layer's ref points, and whether it is there and the one that is wanted,
// unless that is zero. An image of another kind that has the same layer points its ref elsewhere.
func keptAt(repo *ostree.Repo, ref string, wanted ostree.Checksum) (commit ostree.Checksum, kept bool) {
	commit, err := repo.ResolveRef(ref)
	if err != nil || wanted != (ostree.Checksum{}) && commit != wanted {
		return ostree.Checksum{}, false
	}
	if there, err := repo.Has(ostree.ObjectName{Checksum: commit, Type: ostree.Commit}); err != nil || !there {
		return ostree.Checksum{}, false
	}
	return commit, true
}

// baseAndWithoutRef returns the encapsulated commit of an image, to which the ref of its first layer points, or
// zero, and the digests of the layers that have no ref.
func baseAndWithoutRef(repo *ostree.Repo, commit ostree.Checksum) (base ostree.Checksum, without []string) {
	info, err := repo.LoadCommit(commit)
	if err != nil {
		return base, nil
	}
	list, _ := info.Metadata(withoutRefKey).(string)
	return info.Parent, strings.Fields(list)
}

// Remove removes the refs of an image that was imported as a commit, and the refs of layers
// that nothing else needs (see deleteRefs). If the commit is deployed, Remove removes only the ref that
// protected it until it was deployed. Pruning the repository then deletes the objects.
func Remove(repo *ostree.Repo, commit ostree.Checksum, deployed ...ostree.Checksum) error {
	if err := repo.DeleteRef(KeepAliveRef(commit.String())); err != nil || slices.Contains(deployed, commit) {
		return err
	}
	gone, err := repo.RefsTo(imageRefs, commit)
	if err != nil {
		return err
	}
	return deleteRefs(repo, gone, deployed, func() (map[string]ostree.Checksum, error) {
		return layerRefs(repo, []ostree.Checksum{commit}), nil
	})
}

// RemoveUndeployed removes the refs of the ostree-native images that no deployment uses, and
// those of layers that nothing needs, as rpm-ostree and bootc do after an update. It keeps
// imported images that are to be deployed later, which a KeepAliveRef protects. It reports
// whether it removed any refs: pruning the repository then deletes objects.
func RemoveUndeployed(repo *ostree.Repo, deployed ...ostree.Checksum) (removed bool, err error) {
	images, needed, err := imagesAndNeeded(repo, deployed)
	if err != nil {
		return false, err
	}
	var gone []string
	for ref, commit := range images {
		if !slices.Contains(needed, commit) {
			gone = append(gone, ref)
		}
	}
	freed, err := dropParts(repo)
	if err != nil || len(gone) == 0 {
		return freed, err
	}
	return true, deleteRefs(repo, gone, deployed, func() (map[string]ostree.Checksum, error) { return repo.Refs(blobRefs) })
}

// dropParts deletes the refs of layers of which only parts were fetched, except those that an image needs which is
// still to be deployed. Other programs neither know nor prune them. Such a ref must not outlive the moment at which the
// layer has the ref that all know, or it would hold the layer's objects after the image is gone. While an import runs,
// they stay, as in deleteRefs. It reports whether that has freed objects.
func dropParts(repo *ostree.Repo) (freed bool, err error) {
	failed := repo.Idle(func() error {
		parts, err := repo.Refs(partRefs)
		if err != nil || len(parts) == 0 {
			return err
		}
		kept, err := repo.Refs(KeepAliveRef(""))
		if err != nil {
			return err
		}
		needed := layerRefs(repo, slices.Collect(maps.Values(kept)))
		for ref := range parts {
			_, missing := repo.ResolveRef(blobOfPart(ref))
			if _, is := needed[ref]; is && missing != nil {
				continue
			}
			freed = freed || missing != nil
			if err := repo.DeleteRef(ref); err != nil {
				return err
			}
		}
		return nil
	})
	return freed, failed
}

// imagesAndNeeded returns the refs of all ostree-native images, and the commits that are deployed or
// that a KeepAliveRef protects.
func imagesAndNeeded(repo *ostree.Repo, deployed []ostree.Checksum) (images map[string]ostree.Checksum, needed []ostree.Checksum, err error) {
	kept, err := repo.Refs(KeepAliveRef(""))
	if err == nil {
		images, err = repo.Refs(imageRefs)
	}
	return images, slices.AppendSeq(slices.Clone(deployed), maps.Values(kept)), err
}

// deleteRefs deletes the refs of images, and then those of layers, which layers returns, as far as no commit that is
// deployed or that a ref protects needs them. An image with a ref must have all of its layers. While an import runs, no
// layer loses its ref, because the image that is being imported may have it, and has no ref yet. The next deleteRefs
// without one deletes it.
func deleteRefs(repo *ostree.Repo, images []string, deployed []ostree.Checksum, layers func() (map[string]ostree.Checksum, error)) (err error) {
	for _, ref := range images {
		err = errors.Join(err, repo.DeleteRef(ref))
	}
	failed := repo.Idle(func() error {
		needed, err := protected(repo)
		if err != nil {
			return err
		}
		unused, err := layers()
		for ref := range layerRefs(repo, append(needed, deployed...)) {
			delete(unused, ref)
		}
		for ref := range unused {
			err = errors.Join(err, repo.DeleteRef(ref))
		}
		return err
	})
	return errors.Join(err, failed)
}

// protected returns the commits with layers that must stay: those of imports and images, and those that bootc's garbage
// collector keeps (crates/ostree-ext/src/container/store.rs). These are deployments, what packages are layered on, and
// bases that other programs keep.
func protected(repo *ostree.Repo) (commits []ostree.Checksum, err error) {
	for _, below := range []string{KeepAliveRef(""), imageRefs, "ostree/0", "ostree/1", "rpmostree/base", "ostree/container/baseimage"} {
		refs, failed := repo.Refs(below)
		commits, err = slices.AppendSeq(commits, maps.Values(refs)), errors.Join(err, failed)
	}
	return commits, err
}

// layerRefs returns the refs of the layers of the images that were imported as commits, each with
// one of these.
func layerRefs(repo *ostree.Repo, commits []ostree.Checksum) map[string]ostree.Checksum {
	refs := map[string]ostree.Checksum{}
	for _, commit := range commits {
		for _, l := range layersOf(repo, commit) {
			refs[blobRef(l.Digest)] = commit
			if ref := partRef(l); ref != "" {
				refs[ref] = commit
			}
		}
	}
	return refs
}

// layersOf returns the layers of the ostree-native image that was imported as a commit. It returns nil if the
// commit is not a merge commit.
func layersOf(repo *ostree.Repo, commit ostree.Checksum) (layers []source.Layer) {
	info, err := repo.LoadCommit(commit)
	if err != nil {
		return nil
	}
	var manifest imgspec.Manifest
	text, _ := info.Metadata(manifestKey).(string)
	if json.Unmarshal([]byte(text), &manifest) != nil {
		return nil
	}
	var config imgspec.Image
	text, _ = info.Metadata(configKey).(string)
	_ = json.Unmarshal([]byte(text), &config) // without it, no layer was read by parts
	for n, of := range manifest.Layers {
		l := source.Layer{Digest: of.Digest.String(), Annotations: of.Annotations}
		if n < len(config.RootFS.DiffIDs) {
			l.DiffID = config.RootFS.DiffIDs[n].String()
		}
		layers = append(layers, l)
	}
	return layers
}
