package layer

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/sepolicy"
)

// Merged is a merged tree in the repository, not yet kept by a commit.
type Merged struct {
	Root   ostree.DirChecksums
	Layers []OwnTree
	Notes  []string // for people
}

// OwnTree is a layer's own tree, whiteouts included.
type OwnTree struct {
	Root ostree.DirChecksums // zero if Lower is set: it is not added
	// Part means that the tree lacks what is not seen on the base of the merged tree.
	Part bool
	// Lower means that the layer has files of lower layers, by hard links to their paths. No other image that has the
	// layer may use its tree: there the links lead to other files.
	Lower bool
}

// Finish checks the merged tree, labels it and the layers with the tree's SELinux policy, and
// adds both to the import. guessed is the policy with which labels were guessed (AddFile), or
// nil. If it equals the tree's policy, files with a guessed label are not looked up again.
func (t *Tree) Finish(ctx context.Context, guessed *sepolicy.Contexts) (Merged, error) {
	if err := t.removeEmpty("usr/etc", "hostname", "resolv.conf"); err != nil {
		return Merged{}, err
	}
	if err := t.noteVarFiles(); err != nil {
		return Merged{}, err
	}
	if len(t.layers) > 0 { // otherwise the tree is that of the base, unchanged
		if err := t.check(); err != nil {
			return Merged{}, err
		}
		if err := t.labelAll(ctx, guessed); err != nil {
			return Merged{}, err
		}
	}
	var r Merged
	for _, l := range t.layers {
		made, err := l.tree(ctx, t.objects)
		if err != nil {
			return Merged{}, err
		}
		r.Layers = append(r.Layers, made)
	}
	root, err := t.root.write(ctx, t.objects)
	r.Root, r.Notes = root, t.Notes()
	return r, err
}

// removeEmpty removes the named files if they are regular and empty. Container tools create
// them as mount points for their own files; a host must not have them.
func (t *Tree) removeEmpty(at string, names ...string) error {
	d, err := t.lookUpDir(at)
	if err != nil || d == nil {
		return err
	}
	for _, name := range names {
		f := d.files[name]
		if f == nil {
			continue
		}
		stat, err := t.objects.StatFile(f.object)
		if err != nil {
			return err
		}
		if !isLink(stat.Mode) && stat.Size == 0 {
			d.remove(name)
		}
	}
	return nil
}

// labelAll loads the SELinux policies, and labels the layers and the tree.
func (t *Tree) labelAll(ctx context.Context, guessed *sepolicy.Contexts) error {
	merged, err := t.policy()
	if err != nil {
		return err
	}
	fallback, err := t.basePolicy()
	if err != nil {
		return err
	}
	changed, err := t.policyChanged(ctx)
	if err != nil {
		return err
	}
	l := &labeller{ctx: ctx, store: t.objects, merged: merged, fallback: fallback, guessed: merged.Same(guessed),
		before: guessed != nil || slices.ContainsFunc(t.layers, (*Layer).kept)}
	return l.label(t, merged != nil && changed)
}

// basePolicy returns the policy of the base commit, or nil if there is none.
func (t *Tree) basePolicy() (*sepolicy.Contexts, error) {
	if t.base == (ostree.DirChecksums{}) {
		return nil, nil
	}
	base := &Tree{objects: t.objects, root: &dir{saved: t.base, counter: &t.baseNames}}
	return base.policy()
}

// policyChanged reports whether layers have changed the base's policy. If not, the labels of
// the base are right already.
func (t *Tree) policyChanged(ctx context.Context) (bool, error) {
	base := &Tree{objects: t.objects, root: &dir{saved: t.base, counter: &t.baseNames}}
	if t.base == (ostree.DirChecksums{}) {
		base.root = implied(0, 0)
	}
	var trees [2]ostree.DirChecksums
	for i, tree := range []*Tree{t, base} {
		d, err := tree.lookUpDir(selinuxDir)
		if err != nil {
			return false, err
		}
		if d == nil {
			continue
		}
		if trees[i], err = d.write(ctx, t.objects); err != nil {
			return false, err
		}
	}
	return trees[0].Tree != trees[1].Tree, nil
}

// Write adds the tree of a complete layer to the objects before the merge. label guesses
// the labels of its directories; if the guesses are right, Finish does not write the layer
// again. If the layer has hard links into other layers, which only the merge can resolve, Write
// writes nothing and whole is false.
func (l *Layer) Write(ctx context.Context, objects Objects, label func(path string, mode uint32) string) (root ostree.DirChecksums, whole bool, err error) {
	if len(l.links) > 0 {
		return root, false, nil
	}
	l.root.guessLabels("/", label)
	root, err = l.root.write(ctx, objects)
	l.written = &root
	return root, true, err
}

// tree adds the tree of a merged layer to the objects, unless it has files of lower layers.
func (l *Layer) tree(ctx context.Context, objects Objects) (OwnTree, error) {
	made := OwnTree{Part: l.part, Lower: l.lower}
	if l.written == nil && !l.lower {
		root, err := l.root.write(ctx, objects)
		if err != nil {
			return made, err
		}
		l.written = &root
	}
	if !l.lower {
		made.Root = *l.written
	}
	return made, nil
}

// guessLabels sets guessed labels on the directories of a layer. at is the path of d with a
// trailing "/".
func (d *dir) guessLabels(at string, label func(path string, mode uint32) string) {
	guess := label(lookupPath(at), unix.S_IFDIR)
	setLabel(d.info, guess)
	d.guessed = guess != ""
	for name, below := range d.dirs {
		below.guessLabels(at+name+"/", label)
	}
}

// setLabel sets a directory's label, unless it is "". It reports whether the label changed.
func setLabel(info *ostree.DirInfo, label string) (changed bool) {
	if label == "" || string(info.Xattrs[hostfiles.LabelAttribute]) == label+"\x00" {
		return false
	}
	if info.Xattrs == nil {
		info.Xattrs = map[string][]byte{}
	}
	ostree.SetLabel(info.Xattrs, label)
	return true
}

// write adds a directory and everything below it to the objects. Directories that were not
// loaded are unchanged, so their objects exist already.
func (d *dir) write(ctx context.Context, objects Objects) (sums ostree.DirChecksums, err error) {
	sums = d.saved
	if d.info != nil {
		if sums.Meta, err = objects.AddDirInfo(ctx, *d.info); err != nil {
			return sums, err
		}
	}
	if !d.loaded {
		return sums, nil
	}
	made := &ostree.Directory{Files: make(map[string]ostree.Checksum, len(d.files)), Dirs: make(map[string]ostree.DirChecksums, len(d.dirs))}
	for name, f := range d.files {
		made.Files[name] = f.object
	}
	for name, below := range d.dirs {
		if made.Dirs[name], err = below.write(ctx, objects); err != nil {
			return sums, err
		}
	}
	sums.Tree, err = objects.AddDirectory(ctx, made)
	return sums, err
}
