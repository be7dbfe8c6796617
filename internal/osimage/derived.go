package osimage

import (
	"context"
	"path"
	"time"

	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/osimage/merge"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/selinux"
)

// mergeLayers merges the derived layers, if there are any, into the base's tree and sets
// the commit's tree to the result. It returns a commit for each layer's own tree, which
// keeps the layer's objects for the next image that shares the layer.
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
	merged, err := tree.Finish(ctx, i.guess)
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

// derivedLayer is the layer that this import has read (now), or the one that an earlier
// import has kept by a commit (before).
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

// early makes a commit for a derived layer as soon as it is read, so that an interrupted
// import need not fetch it again. Only where labels were guessed: a guess is nearly always
// right, while without one most objects would change when they are labelled.
func (i *importer) early(ctx context.Context, l *merge.Layer) (commit ostree.Checksum, made bool, err error) {
	if i.guess == nil {
		return commit, false, nil
	}
	root, whole, err := l.Write(ctx, i.target, i.guessLabel)
	if err != nil || !whole {
		return commit, false, err
	}
	commit, err = i.target.AddCommit(ctx, layerCommit(root))
	return commit, err == nil, err
}

// guessLabels reads the policy by which labels are guessed while derived layers are read:
// the host's, which nearly always gives the same labels as the next OS's. The merged
// tree's own policy is known only when all layers are there; files for which it has
// another label are then changed.
func (i *importer) guessLabels() {
	if i.Derived == 0 {
		return
	}
	files := selinux.In(path.Join(i.root, "etc/selinux"))
	config, err := files.Config()
	if err == nil && config.On() {
		i.guess, _ = files.Contexts(config.Policy) // on an error there is no guess
	}
}

func (i *importer) guessLabel(name string, mode uint32) string {
	if i.guess == nil {
		return ""
	}
	label, _, _ := i.guess.Label(name, selinux.Type(mode)) // on an error there is no guess
	return label
}
