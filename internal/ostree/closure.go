package ostree

import (
	"context"
	"os"
)

// walk goes from commits to everything that they are made of, and checks that it is
// there.
type walk struct {
	find  func(ObjectName) (objectState, error) // absent: the object is not there
	read  func(ObjectName) ([]byte, error)      // a metadata object that is there
	whole map[ObjectName]bool                   // known to be there with all that they refer to

	seen   map[ObjectName]bool
	todo   []ObjectName
	staged []ObjectName // those that are in the staging directory
}

// newWalk is a walk over the repository.
func (r *Repo) newWalk() *walk {
	return &walk{find: r.find, read: r.readMetadata, seen: map[ObjectName]bool{}}
}

// newWalk is a walk over the objects of this import and of the repository.
func (im *Import) newWalk() *walk {
	return &walk{find: im.find, read: im.readMetadata, whole: im.whole, seen: map[ObjectName]bool{}}
}

func (r *Repo) find(n ObjectName) (objectState, error) {
	have, err := r.Has(n)
	return map[bool]objectState{true: inRepo}[have], err
}

func (im *Import) find(n ObjectName) (objectState, error) {
	if state := im.state(n); state != absent {
		return state, nil
	}
	return im.repo.find(n)
}

func (r *Repo) readMetadata(n ObjectName) ([]byte, error) { return os.ReadFile(r.objectPath(n)) }

func (im *Import) readMetadata(n ObjectName) ([]byte, error) {
	if data := im.recent.take(n); data != nil {
		return data, nil
	}
	return os.ReadFile(im.objectPath(n))
}

// HasWhole is an error if a commit or an object that it is made of is not in the
// repository. Contents of files are not read.
func (r *Repo) HasWhole(ctx context.Context, c Checksum) error {
	if r.HasPartial(c) {
		return corrupt(ObjectName{c, Commit}, "it is marked as partial")
	}
	return r.newWalk().commit(ctx, c)
}

// commit walks over a commit and all that it is made of.
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
	meta := ObjectName{c, CommitMeta} // which a commit need not have
	if state, err := w.find(meta); err != nil {
		return err
	} else if state != absent {
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
	if w.seen[n] || w.whole[n] {
		return nil
	}
	if n.Type != DirTree {
		return w.require(n)
	}
	data, err := w.load(n)
	if err != nil {
		return err
	}
	tree, err := openTree(data)
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

// require checks that an object is there.
func (w *walk) require(n ObjectName) error {
	w.seen[n] = true
	state, err := w.find(n)
	switch {
	case err != nil:
		return err
	case state == absent:
		return corrupt(n, "it is missing")
	case state == isStaged:
		w.staged = append(w.staged, n)
	}
	return nil
}

// load reads a metadata object from this import or from the repository.
func (w *walk) load(n ObjectName) ([]byte, error) {
	if err := w.require(n); err != nil {
		return nil, err
	}
	return w.read(n)
}
