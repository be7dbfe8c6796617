package ostree

import (
	"context"
	"os"
)

// walk is a walk from commits to everything they are made of.
type walk struct {
	im     *Import
	seen   map[ObjectName]bool
	todo   []ObjectName
	staged []ObjectName // those that are in the staging directory
}

func newWalk(im *Import) *walk { return &walk{im: im, seen: map[ObjectName]bool{}} }

// HasWhole checks that a commit and all that it is made of are in the repository;
// the error names what is not. Contents are not read.
func (r *Repo) HasWhole(ctx context.Context, c Checksum) error {
	if r.HasPartial(c) {
		return corrupt(ObjectName{c, Commit}, "it is marked as partial")
	}
	return newWalk(&Import{repo: r}).commit(ctx, c)
}

// commit walks over one commit.
func (w *walk) commit(ctx context.Context, c Checksum) error {
	root := ObjectName{c, Commit}
	if w.seen[root] { // another root of the same call
		return nil
	}
	data, err := w.load(root)
	if err != nil {
		return err
	}
	info, err := parseCommit(data)
	if err != nil {
		return corrupt(root, "%v", err)
	}
	w.todo = append(w.todo, ObjectName{info.RootTree, DirTree}, ObjectName{info.RootMeta, DirMeta})
	if meta := (ObjectName{c, CommitMeta}); w.im.state(meta) == staged {
		w.todo = append(w.todo, meta)
	}
	for len(w.todo) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if err := w.visit(n); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) visit(n ObjectName) error {
	if w.seen[n] || w.im.whole[n] {
		return nil
	}
	if n.Type != DirTree {
		_, err := w.require(n)
		return err
	}
	data, err := w.load(n)
	if err != nil {
		return err
	}
	tree, err := openDirTree(data)
	if err != nil {
		return corrupt(n, "%v", err)
	}
	for child := range tree.objects() {
		if !w.seen[child] {
			w.todo = append(w.todo, child)
		}
	}
	return nil
}

// require checks that an object is there; it reports whether it is only staged.
func (w *walk) require(n ObjectName) (isStaged bool, err error) {
	w.seen[n] = true
	switch w.im.state(n) {
	case present:
		return false, nil
	case staged:
		w.staged = append(w.staged, n)
		return true, nil
	}
	have, err := w.im.repo.Has(n)
	if err == nil && !have {
		err = corrupt(n, "it is missing")
	}
	return false, err
}

// load reads a metadata object from this import or from the repository.
func (w *walk) load(n ObjectName) ([]byte, error) {
	isStaged, err := w.require(n)
	if err != nil {
		return nil, err
	}
	if isStaged {
		return os.ReadFile(w.im.staging.path(n))
	}
	return os.ReadFile(w.im.repo.objectPath(n))
}
