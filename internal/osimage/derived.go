package osimage

import (
	"context"
	"path"
	"strings"

	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/sepolicy"
)

// mergeLayers merges the derived layers, if there are any, into the base's tree and sets
// the commit's tree to the result. It also returns one commit per layer with the tree of
// that layer alone. These commits keep the layers' objects for later images that share them
// (see layerCommit).
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
	var without []string
	for n, made := range merged.Layers {
		n += i.baseLayers()
		if made.Lower {
			without = append(without, i.Layers[n].Digest)
			continue
		}
		c, err := i.target.AddCommit(ctx, layerCommit(made, commit.Parent))
		if err != nil {
			return nil, writing(err)
		}
		roots = append(roots, ostree.Root{Commit: c, Refs: []string{have.refs[n]}})
	}
	if len(without) > 0 {
		commit.Metadata = append(commit.Metadata, [2]string{withoutRefKey, strings.Join(without, " ")})
	}
	return roots, nil
}

func (i *importer) baseTree(base *ostree.CommitInfo) (*layer.Tree, error) {
	if base == nil {
		return layer.NewPlainTree(i.target), nil
	}
	return layer.NewTree(i.target, ostree.DirChecksums{Tree: base.RootTree, Meta: base.RootMeta})
}

// derivedLayer returns the layer that this import has read (now) or, if now is nil, the one
// that an earlier import has kept.
func (i *importer) derivedLayer(before keptLayer, now *layer.Derived) (*layer.Layer, error) {
	if now != nil {
		return now.Layer, nil
	}
	info, err := i.repo.LoadCommit(before.commit)
	if err != nil {
		return nil, err
	}
	return layer.From(layer.OwnTree{Root: ostree.DirChecksums{Tree: info.RootTree, Meta: info.RootMeta}, Part: before.part}), nil
}

// commitEarly makes a commit for a derived layer as soon as it is read, so that an
// interrupted import need not fetch it again. made is false if labels are not guessed:
// guesses are nearly always right, but without them most objects would change later, when
// they are labelled. Nor is it made if the layer has names that are seen on some bases only, and
// it is not known yet whether they are on this one.
func (i *importer) commitEarly(ctx context.Context, l *layer.Layer) (commit ostree.Checksum, made bool, err error) {
	if i.guess == nil || i.baseLayers() > 0 && !l.OnlyOfOS() {
		return commit, false, nil
	}
	root, whole, err := l.Write(ctx, i.target, i.guessLabel)
	if err != nil || !whole {
		return commit, false, err
	}
	commit, err = i.target.AddCommit(ctx, layerCommit(layer.OwnTree{Root: root}, ostree.Checksum{}))
	return commit, err == nil, err
}

// guessLabels loads the SELinux policy for guessing labels while derived layers are read. It
// is the host's policy, which nearly always gives the same labels as that of the new OS. The
// policy of the merged tree is known only when all layers are read; files for which it has
// a different label are then changed.
func (i *importer) guessLabels() {
	if i.Derived == 0 {
		return
	}
	files := sepolicy.In(path.Join(i.root, "etc/selinux"))
	config, err := files.Config()
	if err == nil && config.On() {
		i.guess, _ = files.Contexts(config.Policy) // nil on an error: no guesses
	}
}

func (i *importer) guessLabel(name string, mode uint32) string {
	if i.guess == nil {
		return ""
	}
	label, _, _ := i.guess.Label(name, sepolicy.Type(mode)) // "" on an error: no guess
	return label
}
