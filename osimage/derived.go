package osimage

import (
	"context"
	"time"

	"machine-pivot/osimage/layer"
	"machine-pivot/osimage/merge"
	"machine-pivot/ostree"
	"machine-pivot/selinux"
)

// mergeLayers merges the derived layers, if there are any, into the base's tree, which
// the commit gets. It returns the commits of the layers themselves, which keep what is
// in them for the next image that shares them.
func (i *importer) mergeLayers(ctx context.Context, base *ostree.CommitInfo, have present, derived []*layer.Derived, commit *ostree.NewCommit) ([]ostree.Root, error) {
	tree, err := i.baseTree(base)
	if err != nil {
		return nil, writing(err)
	}
	for n := i.baseLayers(); n < len(i.Layers); n++ {
		l, err := i.derivedLayer(have.derived[n], derived[n])
		if err == nil {
			err = tree.Add(l)
		}
		if err != nil {
			return nil, writing(err)
		}
	}
	merged, err := tree.Finish(ctx)
	if err != nil {
		return nil, writing(err)
	}
	commit.RootTree, commit.RootMeta = merged.Root.Tree, merged.Root.Meta
	i.result.Notes = merged.Notes
	var roots []ostree.Root
	for n, root := range merged.Layers {
		c, err := i.target.AddCommit(ctx, layerCommit(root))
		if err != nil {
			return nil, writing(err)
		}
		roots = append(roots, ostree.Root{Commit: c, Refs: []string{i.layerRef(i.baseLayers() + n)}})
	}
	return roots, nil
}

// layerCommit is the commit of a derived layer's own tree. The same layer makes the
// same commit.
func layerCommit(root ostree.DirChecksums) ostree.NewCommit {
	return ostree.NewCommit{
		Metadata:  [][2]string{{"ostree.importer.version", importerName}},
		Timestamp: time.Unix(0, 0), RootTree: root.Tree, RootMeta: root.Meta,
	}
}

func (i *importer) baseTree(base *ostree.CommitInfo) (*merge.Tree, error) {
	if base == nil {
		return merge.NewPlain(i.target), nil
	}
	return merge.New(i.target, ostree.DirChecksums{Tree: base.RootTree, Meta: base.RootMeta})
}

// derivedLayer is a layer that was read now, or by an earlier import.
func (i *importer) derivedLayer(before ostree.Checksum, now *layer.Derived) (*merge.Layer, error) {
	if now != nil {
		return now.Layer, nil
	}
	info, err := i.repo.LoadCommit(before)
	if err != nil {
		return nil, err
	}
	return merge.LayerFrom(ostree.DirChecksums{Tree: info.RootTree, Meta: info.RootMeta}), nil
}

// provisional guesses the labels of files while their layers are read: by the policy of
// the host, which is nearly always right for the next OS too. What the merged tree's
// own policy says is known when all layers are there; a file that was given another
// label is then changed.
func (i *importer) provisional() func(path string, mode uint32) string {
	none := func(string, uint32) string { return "" }
	if i.Derived == 0 {
		return none
	}
	policy, err := selinux.Installed(i.root)
	if err != nil || policy == nil {
		return none
	}
	return func(path string, mode uint32) string {
		label, _ := policy.Label(path, mode) // it is a guess: no label will do
		return label
	}
}
