package projection

import (
	"errors"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/varentries"
)

// PutBack makes a file, directory or link stand at a path outside of /etc, whatever the system
// carries, as the projection does: durably, no link followed, nothing else removed. Nil is
// nothing.
func (p *Projector) PutBack(name string, f *hostfiles.File) error {
	labels, err := hostfiles.RunningLabels(p.Root)
	if err != nil {
		return err
	}
	have, there, err := Look(p.Root, name)
	if err != nil || f == nil && !there {
		return err
	}
	at, err := p.at(name)
	if err != nil {
		return err
	}
	defer at.Close()
	if err := at.clear(); err != nil {
		return err
	}
	if f == nil {
		if err := at.remove(); !errors.Is(err, errFull) { // what else is in it stays
			return err
		}
		return nil
	}
	if there && have.Entry == f.Entry {
		return at.settle(have, there)
	}
	label, err := labels.Of(f.Entry)
	if err != nil {
		return err
	}
	return at.put(*f, have, there, label)
}

// Settled reports whether all that a system carries is projected, and nothing is left to be
// done again: only then does what fails to be projected next fail for the first time.
func Settled(root string) (bool, error) {
	r, err := load(root)
	if err != nil {
		return false, err
	}
	carried, err := varentries.Read(root)
	if err != nil || r.Set != carried.ID && len(r.Items)+len(carried.Entries) > 0 {
		return false, err
	}
	for _, i := range r.Items {
		if i.Begun {
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

// Drifted is what stands where a system carries entries, and differs from them: their paths
// with what stands there, or nil. Owners by name are the accounts'.
func Drifted(root string, accounts hostfiles.Accounts) (map[string]*hostfiles.File, error) {
	carried, err := varentries.Read(root)
	found := map[string]*hostfiles.File{}
	for _, e := range carried.Entries {
		have, there, err := Look(root, e.Path)
		if err != nil {
			return nil, err
		}
		want, err := accounts.Owned(e)
		switch {
		case !there:
			found[e.Path] = nil
		case err != nil || have.Entry != want:
			found[e.Path] = &have
		}
	}
	return found, err
}
