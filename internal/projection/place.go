package projection

import (
	"errors"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
)

// place is the place of an entry in its open directory.
type place struct {
	disk   hostfiles.Disk
	dir    *hostfiles.Dir
	base   string
	target string            // path of the entry
	note   func(what string) // reports to people what was in the way
}

// at opens the place of an entry, and makes way to it for one that is put there. The caller must
// close it.
func (p *Projector) at(name string, put bool) (*place, error) {
	base := path.Base(name)
	note := func(what string) { p.Note(path.Dir(name) + ": " + what) }
	open := func() (*hostfiles.Dir, error) { return hostfiles.OpenDir(p.Root, name, hostfiles.FollowNone) }
	if put {
		open = func() (*hostfiles.Dir, error) { return hostfiles.MakeWay(p.Disk, p.Root, name, note) }
	}
	dir, err := open()
	if err != nil {
		return nil, err
	}
	return &place{disk: p.Disk, dir: dir, base: base, target: dir.At(base), note: note}, nil
}

// Close closes the directory.
func (at *place) Close() error { return at.dir.Close() }

// put creates an entry, or replaces the one there, durably. A file appears atomically.
func (at *place) put(f hostfiles.File, have hostfiles.File, there bool, label string) error {
	isDir, wasDir := f.Kind == hostfiles.KindDirectory, there && have.Kind == hostfiles.KindDirectory
	if isDir && wasDir {
		return errors.Join(at.disk.Own(at.target, f.Entry), at.syncPresent(have, there))
	}
	if there && (isDir || wasDir || !have.Whole()) { // a rename cannot replace it, or would lose it
		if err := at.makeRoom(have); err != nil {
			return err
		}
	}
	if isDir {
		return errors.Join(at.disk.Make(at.target, f, label), at.sync())
	}
	temp := at.dir.At(hostfiles.TemporaryName())
	err := at.disk.Make(temp, f, label)
	if err == nil && f.Kind == hostfiles.KindFile {
		err = at.disk.Sync(temp)
	}
	if err == nil {
		err = at.dir.Place(at.disk, temp, at.base, at.note)
	}
	return errors.Join(err, at.sync())
}

// makeRoom removes what is there, or moves it aside if that is a user's, or not known.
func (at *place) makeRoom(have hostfiles.File) error {
	if !at.dir.Shared() && have.Whole() {
		return at.remove()
	}
	if have.Kind == hostfiles.KindDirectory {
		if err := at.remove(); err == nil || !errors.Is(err, errFull) {
			return err
		}
	}
	if err := at.dir.MoveAside(at.disk, at.base, at.note); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil // moved, or removed by the user meanwhile
}

// errFull is the error if a directory to be removed is not empty.
var errFull = errors.New("there is more in it")

// remove removes the entry durably.
func (at *place) remove() error {
	err := at.disk.Remove(at.target)
	if errors.Is(err, unix.ENOTEMPTY) {
		return errFull
	}
	if err != nil {
		return err
	}
	return at.sync()
}

// syncPresent makes an entry that is already as wanted durable, since an earlier run may have been
// killed before it did that.
func (at *place) syncPresent(have hostfiles.File, there bool) error {
	if there && have.Kind == hostfiles.KindDirectory {
		if err := at.disk.Sync(at.target); err != nil {
			return err
		}
	}
	return at.sync()
}

// clear removes the temporary files that a crash may have left.
func (at *place) clear() error { return at.dir.Clear(at.disk) }

func (at *place) sync() error { return at.disk.Sync(at.dir.Path()) }
