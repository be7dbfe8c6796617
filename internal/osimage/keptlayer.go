package osimage

import (
	"context"
	"time"

	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/ostree"
)

// A layer's ref names its blob, and images that have nothing else in common share blobs. So a ref is used only if its
// commit has the kind of the layer in the image, and follows from the blob alone, by this release's rules. Otherwise an
// image would get what another one made of the layer, such as the targets of hard links there. Anything else counts as
// missing, and the layer is fetched.
//
//   - The first layer has the encapsulated commit, and each other base layer a list of its objects. Both
//     are made of nothing but the blob, by whichever program, and each of their objects is verified.
//   - A derived layer has the commit of layerCommit. Those of other programs and of earlier releases,
//     which have no rulesKey, were made by other rules (docs/dev/import.md).

// rulesKey is the metadata key of a derived layer's commit with the rules by which it was made. If the tree lacks what
// is not seen on one base, it is rules and that base's commit. Releases of bootc from 1.15 on keep it when they label
// the commit again.
const rulesKey = "pivot.layer-rules"

// rules is the version of the rules by which the tree of a derived layer follows from its blob. A change of
// what package layer makes of the same blob needs another version.
const rules = "2"

// importerKey is the metadata key by which commits name the program that made them of a layer or an image.
const importerKey = "ostree.importer.version"

// withoutRefKey is the metadata key of a merge commit that has the digests of the derived layers that have no ref,
// separated by spaces. Their trees have files of lower layers.
const withoutRefKey = "pivot.layers-without-ref"

// keptLayer is a derived layer that an earlier import has kept.
type keptLayer struct {
	commit ostree.Checksum
	part   bool // it lacks what is not seen on the image's base
}

// layerCommit returns the commit for the tree of one derived layer, on an encapsulated commit or, for a plain
// image, on none. It is reproducible: the same layer always gives the same commit.
func layerCommit(made layer.OwnTree, base ostree.Checksum) ostree.NewCommit {
	by := rules
	if made.Part {
		by = rulesOn(base)
	}
	return ostree.NewCommit{
		Metadata:  [][2]string{{importerKey, importerName}, {rulesKey, by}},
		Timestamp: time.Unix(0, 0), RootTree: made.Root.Tree, RootMeta: made.Root.Meta,
	}
}

func rulesOn(base ostree.Checksum) string { return rules + " on " + base.String() }

// derivedLayerOf returns the derived layer that a ref keeps for an image with the given encapsulated commit,
// which is zero if it is not known.
func derivedLayerOf(ctx context.Context, repo *ostree.Repo, ref string, base ostree.Checksum) (kept keptLayer, found bool) {
	commit, err := repo.ResolveRef(ref)
	if err != nil {
		return kept, false
	}
	info, err := repo.LoadCommit(commit)
	if err != nil {
		return kept, false
	}
	switch by, _ := info.Metadata(rulesKey).(string); {
	case by == rules:
	case base != (ostree.Checksum{}) && by == rulesOn(base):
		kept.part = true
	default:
		return kept, false
	}
	kept.commit = commit
	return kept, repo.HasWhole(ctx, commit) == nil
}

// encapsulatedBy returns the encapsulated commit that the ref of a first layer keeps.
func encapsulatedBy(repo *ostree.Repo, ref string) (commit ostree.Checksum, found bool) {
	commit, err := repo.ResolveRef(ref)
	if err != nil {
		return commit, false
	}
	info, err := repo.LoadCommit(commit)
	if err != nil {
		return commit, false
	}
	derived := info.Metadata(importerKey) != nil && info.ManifestDigest() == ""
	return commit, !derived && !repo.IsObjectSet(commit)
}
