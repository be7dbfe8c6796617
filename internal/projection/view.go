package projection

import (
	"machine-pivot/internal/hostfiles"
)

// View is what a running system has at paths outside of /etc. Paths with nothing are absent from
// the maps.
type View struct {
	Entries map[string]hostfiles.Entry // what is there
	// Without is what would be there without a MachineConfig: what the projection has replaced,
	// or what somebody else has put there.
	Without map[string]hostfiles.Entry
}

// Observe returns the view of the system with the given root directory at paths.
func Observe(root string, paths []string) (View, error) {
	v := View{Entries: map[string]hostfiles.Entry{}, Without: map[string]hostfiles.Entry{}}
	if len(paths) == 0 {
		return v, nil
	}
	r, err := load(root)
	if err != nil {
		return v, err
	}
	carried, err := Read(root)
	if err != nil {
		return v, err
	}
	for _, name := range paths {
		have, there, err := hostfiles.Look(root, name)
		if err != nil {
			return v, err
		}
		if there {
			v.Entries[name] = have.Entry
		}
		i, projected := r.item(name)
		ours := projected && (!there || i.owns(have.Entry))
		switch {
		case ours && i.Was != nil:
			v.Without[name] = *i.Was
		case ours, !projected && carried.Has(name):
		case there:
			v.Without[name] = have.Entry
		}
	}
	return v, nil
}
