package projection

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/sepolicy"
)

// PutBack restores a file, directory or link at a path outside of /etc, whatever the system
// carries. Like the projection it does so durably, follows no links, and removes no directory
// that is not empty. nil removes what is there. It returns an error for a file that is not Whole, and
// changes nothing then.
func (p *Projector) PutBack(name string, f *hostfiles.File) error {
	if f != nil && !f.Whole() {
		return errors.New("its content is not known")
	}
	labels, err := sepolicy.RunningLabels(p.Root)
	if err != nil {
		return err
	}
	have, there, err := hostfiles.Look(p.Root, name)
	if err != nil || f == nil && !there {
		return err
	}
	at, err := p.at(name, f != nil)
	if err != nil {
		return err
	}
	defer at.Close()
	if err := at.clear(); err != nil {
		return err
	}
	if f == nil {
		if err := at.remove(); !errors.Is(err, errFull) { // a directory that is not empty stays
			return err
		}
		return nil
	}
	if there && have.Entry == f.Entry {
		return at.syncPresent(have, there)
	}
	label, err := labels.Of(f.Path, f.Kind.Type())
	if err != nil {
		return err
	}
	return at.put(*f, have, there, label)
}

// Release forgets what was projected, so that it stays as it is, and what it had replaced. The running
// system must not carry it any longer than until its next boot, which would take it for its own.
func (p *Projector) Release() error {
	_, err := os.Lstat(filepath.Join(p.Root, RecordPath))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return p.save(record{})
}

// Settled reports whether everything that a system carries is projected, and no step has to be
// repeated. Only then is a failure of the next projection due to the change that causes it. What
// users obstruct in their directories does not count, because it is no failure.
func Settled(root string) (bool, error) {
	r, err := load(root)
	if err != nil {
		return false, err
	}
	carried, err := Read(root)
	if err != nil || r.Set != carried.ID { // of nothing, both are empty
		return false, err
	}
	for _, i := range r.Items {
		if i.Begun && !hostfiles.OfUsers(root, i.Path) {
			return false, nil
		}
	}
	for _, e := range carried.Entries {
		if _, known := r.item(e.Path); !known {
			return false, nil
		}
	}
	return true, nil
}

// Drifted returns the entries that a system carries, and from which it differs at their paths. Owners by
// name are looked up in accounts.
func Drifted(root string, accounts hostfiles.Accounts) (differ []hostfiles.Entry, err error) {
	carried, err := Read(root)
	for _, e := range carried.Entries {
		have, there, err := hostfiles.Look(root, e.Path)
		if err != nil {
			return nil, err
		}
		want, err := accounts.Owned(e)
		if !there || err != nil || have.Entry != want {
			differ = append(differ, e)
		}
	}
	return differ, err
}
