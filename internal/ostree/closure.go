package ostree

import (
	"context"
	"os"
)

// maxExpanded bounds how many files and directories a directory may have below it when it
// is checked out. An object is stored once, but may be named many times: few small ones
// that name each other stand for more files than a disk can have. Large systems have a
// hundredth of it.
const maxExpanded = 10_000_000

// walk goes from commits to everything that they are made of, and checks that it is
// there, and not more than can be checked out.
type walk struct {
	find  func(ObjectName) (objectState, error) // absent: the object is not there
	read  func(ObjectName) ([]byte, error)      // a metadata object that is there
	whole map[ObjectName]bool                   // known to be there with all that they refer to

	// expanded is how many files and directories are below a directory, each counted as
	// often as it is named; of the directories that have been walked over.
	expanded map[Checksum]int

	seen   map[ObjectName]bool
	todo   []step
	within []count      // the directories that are being walked over, the innermost last
	staged []ObjectName // those that are in the staging directory
}

// step is an object to be visited, or the end of the innermost directory.
type step struct {
	ObjectName
	end bool
}

// count counts what is below a directory.
type count struct {
	tree  Checksum
	below int
}

// newWalk is a walk over the repository.
func (r *Repo) newWalk() *walk {
	return &walk{find: r.find, read: r.readMetadata, expanded: map[Checksum]int{}, seen: map[ObjectName]bool{}}
}

// newWalk is a walk over the objects of this import and of the repository.
func (im *Import) newWalk() *walk {
	return &walk{find: im.find, read: im.readMetadata, whole: im.whole, expanded: im.expanded, seen: map[ObjectName]bool{}}
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
	w.add(ObjectName{info.RootTree, DirTree})
	w.add(ObjectName{info.RootMeta, DirMeta})
	meta := ObjectName{c, CommitMeta} // which a commit need not have
	if state, err := w.find(meta); err != nil {
		return err
	} else if state != absent {
		w.add(meta)
	}
	for len(w.todo) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		next := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if err := w.take(next); err != nil {
			return err
		}
	}
	return nil
}

// add adds an object to be visited.
func (w *walk) add(n ObjectName) { w.todo = append(w.todo, step{ObjectName: n}) }

func (w *walk) take(next step) error {
	if next.end {
		return w.leave()
	}
	if !w.seen[next.ObjectName] && !w.whole[next.ObjectName] {
		return w.visit(next.ObjectName)
	}
	if next.Type == DirTree {
		return w.grow(w.expanded[next.Checksum])
	}
	return nil
}

func (w *walk) visit(n ObjectName) error {
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
	return w.enter(n, tree)
}

// enter begins with a directory: until its end is reached all that is visited is below it.
func (w *walk) enter(n ObjectName, tree treeObject) error {
	w.within = append(w.within, count{tree: n.Checksum})
	w.todo = append(w.todo, step{n, true})
	names := 0
	for f := range tree.allFiles() {
		names++
		if file := (ObjectName{f.file, File}); !w.seen[file] {
			w.add(file)
		}
	}
	for d := range tree.allDirs() {
		names++
		if meta := (ObjectName{d.meta, DirMeta}); !w.seen[meta] {
			w.add(meta)
		}
		w.add(ObjectName{d.tree, DirTree}) // also if it was seen: it counts again
	}
	return w.grow(names)
}

// leave ends the innermost directory.
func (w *walk) leave() error {
	last := w.within[len(w.within)-1]
	w.within = w.within[:len(w.within)-1]
	w.expanded[last.tree] = last.below
	return w.grow(last.below)
}

// grow counts more files and directories below the innermost directory. Neither number is
// above the bound, so that the sum cannot overflow.
func (w *walk) grow(more int) error {
	if len(w.within) == 0 {
		return nil
	}
	at := &w.within[len(w.within)-1]
	if at.below += more; at.below > maxExpanded {
		return corrupt(ObjectName{at.tree, DirTree}, "it stands for more than %d files and directories", maxExpanded)
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
