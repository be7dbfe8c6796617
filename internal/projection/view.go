package projection

import (
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/varentries"
)

// View is what a system that runs has at paths that are not below /etc. A path where
// nothing stands is absent.
type View struct {
	Entries map[string]hostfiles.Entry // what stands there
	// Without is what would stand there if no MachineConfig asked for it: what was replaced,
	// or what somebody has put there.
	Without map[string]hostfiles.Entry
}

// Observe looks at a system by its root directory.
func Observe(root string, paths []string) (View, error) {
	v := View{Entries: map[string]hostfiles.Entry{}, Without: map[string]hostfiles.Entry{}}
	if len(paths) == 0 {
		return v, nil
	}
	r, err := load(root)
	if err != nil {
		return v, err
	}
	carried, err := varentries.Read(root)
	if err != nil {
		return v, err
	}
	for _, name := range paths {
		have, there, err := Look(root, name)
		if err != nil {
			return v, err
		}
		if there {
			v.Entries[name] = have.Entry
		}
		i, projected := r.item(name)
		ours := projected && (!there || i.is(have.Entry))
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
