package ostree

import (
	"context"
	"os"

	"machine-pivot/internal/guard"
)

// maxExpanded limits the number of files and directories below a directory when it is checked out. An object is stored
// once but may be referenced many times. So a few small DirTree objects that refer to each other can expand to more
// files than a disk can hold. Large systems have about a hundredth of this limit.
const maxExpanded = 10_000_000

// walk visits all objects that commits refer to, and checks that they exist and do not
// expand to more than maxExpanded files.
type walk struct {
	path  func(ObjectName) string               // where the repository has an object
	find  func(ObjectName) (objectState, error) // absent if the object does not exist
	read  func(ObjectName) ([]byte, error)      // reads an existing metadata object
	whole map[ObjectName]bool                   // objects known to exist with all that they refer to

	// expanded is the number of files and directories below each directory that has been
	// visited, each counted as often as it is referenced.
	expanded map[Checksum]int

	seen   map[ObjectName]bool
	todo   []step       // a stack
	within []count      // the directories being visited, the innermost last
	staged []ObjectName // the visited objects that are in the staging directory
}

// step is an object to visit, or the end of the innermost directory.
type step struct {
	ObjectName
	end bool
}

// count is the number of files and directories found so far below a directory.
type count struct {
	tree  Checksum
	below int
}

// newWalk returns a walk over the objects of the repository.
func (r *Repo) newWalk() *walk {
	return &walk{path: r.objectPath, find: r.find, read: r.readMetadata, expanded: map[Checksum]int{}, seen: map[ObjectName]bool{}}
}

// newWalk returns a walk over the objects of this import and of the repository.
func (im *Import) newWalk() *walk {
	return &walk{path: im.repo.objectPath, find: im.find, read: im.readMetadata, whole: im.whole, expanded: im.expanded, seen: map[ObjectName]bool{}}
}

// find returns the state of an object of the repository, which is absent also for a wrong one.
func (r *Repo) find(n ObjectName) (objectState, error) {
	if n.Type == File {
		return r.findFile(n)
	}
	have, err := r.Has(n)
	if have && n.Type == DirMeta { // the content of the others is read, and then compared, by load
		have = r.verifies(n)
	}
	return map[bool]objectState{true: inRepo}[have], err
}

func (im *Import) find(n ObjectName) (objectState, error) {
	if state := im.state(n); state != absent {
		return state, nil
	}
	return im.repo.find(n)
}

func (im *Import) readMetadata(n ObjectName) ([]byte, error) {
	if data := im.recent.take(n); data != nil {
		return data, nil
	}
	return im.Objects.readMetadata(n)
}

// HasWhole returns an error unless a commit and all objects that it refers to are in the
// repository and the commit is not marked as partial. It does not read the contents of files.
func (r *Repo) HasWhole(ctx context.Context, c Checksum) error {
	if r.HasPartial(c) {
		return corrupt(ObjectName{c, Commit}, "it is marked as partial")
	}
	return r.newWalk().commit(ctx, c)
}

// commit visits a commit and all objects that it refers to.
func (w *walk) commit(ctx context.Context, c Checksum) error {
	root := ObjectName{c, Commit}
	if w.seen[root] { // visited already, as another root
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
	meta := ObjectName{c, CommitMeta} // optional
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

// add schedules an object to be visited.
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

// enter begins a directory and schedules its entries. Everything visited before its end step
// is below it.
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
		w.add(ObjectName{d.tree, DirTree}) // even if it was seen: its files count again
	}
	return w.grow(names)
}

// leave ends the innermost directory and adds its count to its parent's.
func (w *walk) leave() error {
	last := w.within[len(w.within)-1]
	w.within = w.within[:len(w.within)-1]
	w.expanded[last.tree] = last.below
	return w.grow(last.below)
}

// grow counts more files and directories below the innermost directory. Neither operand
// exceeds maxExpanded, so the sum cannot overflow.
func (w *walk) grow(more int) error {
	if len(w.within) == 0 {
		return nil
	}
	at := &w.within[len(w.within)-1]
	if at.below += more; at.below > maxExpanded {
		return corrupt(ObjectName{at.tree, DirTree}, "%w", guard.TooMuch("it stands for more than %d files and directories", maxExpanded))
	}
	return nil
}

// require checks that an object exists.
func (w *walk) require(n ObjectName) error {
	w.seen[n] = true
	state, err := w.find(n)
	switch {
	case err != nil:
		return err
	case state == absent:
		return w.lacks(n)
	case state == isStaged:
		w.staged = append(w.staged, n)
	}
	return nil
}

// lacks returns the error for an object that does not exist.
func (w *walk) lacks(n ObjectName) error {
	if _, err := os.Lstat(w.path(n)); err == nil {
		return damaged(n, w.path(n))
	}
	return corrupt(n, "it is missing")
}

// load reads a metadata object from this import or from the repository.
func (w *walk) load(n ObjectName) ([]byte, error) {
	if err := w.require(n); err != nil {
		return nil, err
	}
	return w.read(n)
}
