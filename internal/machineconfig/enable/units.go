package enable

import (
	"maps"
	"path"
	"slices"

	"machine-pivot/internal/hostfiles"
)

// State is the wanted enablement of a unit.
type State string

const (
	Enabled  State = "enabled"
	Disabled State = "disabled" // no link enables the unit, not even one in the image
	Preset   State = "preset"   // as the system's presets say
)

// Wish is the wanted state of a unit's links. The unit's file, and a link that masks a unit, are
// entries instead.
type Wish struct {
	Name   string `json:"name"`
	State  State  `json:"state,omitempty"`  // "" for no preference
	Unmask bool   `json:"unmask,omitempty"` // nothing in /etc masks the unit
}

// String returns the wish for display, in the imperative.
func (w Wish) String() string {
	verb := map[State]string{Enabled: "enable", Disabled: "disable", Preset: "preset"}[w.State]
	if w.Unmask && verb != "" {
		verb = "unmask and " + verb
	} else if w.Unmask {
		verb = "unmask"
	}
	if verb == "" {
		return "leave unit " + w.Name + " as the image has it"
	}
	return verb + " unit " + w.Name
}

// Units are a target's wishes for units. Their links depend on the system: see Resolve.
type Units struct {
	Wishes []Wish `json:"wishes,omitempty"`
	// Install has the sections [Install] of the unit files and drop-ins among the target's
	// entries, by path; "" if a file has none. The rest of the files does not matter here.
	Install map[string]string `json:"install,omitempty"`
}

// IsZero reports whether there are no wishes.
func (u Units) IsZero() bool { return len(u.Wishes) == 0 }

// Same reports whether both have the same wishes and sections.
func (u Units) Same(other Units) bool {
	return slices.Equal(u.Wishes, other.Wishes) && maps.Equal(u.Install, other.Install)
}

// Brings reports whether the target has the unit's file.
func (u Units) Brings(name string) bool {
	_, brings := u.Install[path.Join(Dir, name)]
	return brings
}

// Tree is a directory tree of a system.
type Tree interface {
	// Look returns what is at a path from the system's root, without following links; false if
	// there is nothing. Only the contents of files are used.
	Look(path string) (hostfiles.File, bool, error)
	// Names returns the names in a directory. There may be names for which Look finds nothing.
	Names(dir string) ([]string, error)
}

// System is a system in which wishes are resolved.
type System struct {
	Etc   Tree // /etc, with paths such as /etc/fstab
	Image Tree // the image, with paths such as /usr/lib/os-release and /usr/etc/fstab
}

// with returns the system with entries in /etc. install has the sections [Install] of their unit
// files.
func (s System) with(entries []hostfiles.Entry, install map[string]string) System {
	s.Etc = overlaid{etc: s.Etc, image: s.Image, entries: byPath(entries), install: install}
	return s
}

func byPath(entries []hostfiles.Entry) map[string]hostfiles.Entry {
	all := make(map[string]hostfiles.Entry, len(entries))
	for _, e := range entries {
		all[e.Path] = e
	}
	return all
}

// overlaid is an /etc with entries laid over it.
type overlaid struct {
	etc, image Tree
	entries    map[string]hostfiles.Entry
	install    map[string]string
}

func (o overlaid) Look(path string) (hostfiles.File, bool, error) {
	e, asked := o.entries[path]
	switch {
	case !asked:
		return o.etc.Look(path)
	case e.Kind == hostfiles.KindDefault:
		return o.image.Look("/usr" + path)
	case e.Kind == hostfiles.KindAbsent:
		return hostfiles.File{}, false, nil
	case e.Kind == hostfiles.KindFile && e.Digest == hostfiles.DigestOf(nil):
		return hostfiles.File{Entry: e}, true, nil // a mask
	}
	// Something has to precede the section, which can be empty: an empty unit file would be a mask.
	return hostfiles.File{Entry: e, Content: []byte("[Unit]\n" + o.install[path])}, true, nil
}

func (o overlaid) Names(dir string) ([]string, error) {
	names, err := o.etc.Names(dir)
	for path := range o.entries {
		if name, below := nameIn(dir, path); below {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}
