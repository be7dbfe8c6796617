package enable

import (
	"maps"
	"path"
	"slices"

	"machine-pivot/internal/hostfiles"
)

// State is what shall be true of a unit's enablement.
type State string

const (
	Enabled  State = "enabled"
	Disabled State = "disabled" // no link enables it, not one of the image's either
	Preset   State = "preset"   // as the system's presets say
)

// Wish is what is asked of a unit. It is about links alone: a unit's file, and the link
// of one that is masked, are entries.
type Wish struct {
	Name   string `json:"name"`
	State  State  `json:"state,omitempty"`  // "": nothing is asked
	Unmask bool   `json:"unmask,omitempty"` // no link in /etc masks it
}

// String is the wish for people, as an order.
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

// Units are what is asked of the units of a system. Which links that means is only known
// where the system is: see Resolve.
type Units struct {
	Wishes []Wish `json:"wishes,omitempty"`
	// Install has the sections [Install] of the units' files that are asked for too, and of
	// their drop-ins, by path; "" where there is none. Other lines do not matter here.
	Install map[string]string `json:"install,omitempty"`
}

// IsZero reports whether nothing is asked.
func (u Units) IsZero() bool { return len(u.Wishes) == 0 }

// Same reports whether both ask for the same.
func (u Units) Same(other Units) bool {
	return slices.Equal(u.Wishes, other.Wishes) && maps.Equal(u.Install, other.Install)
}

// Brings reports whether a unit's file is asked for too.
func (u Units) Brings(name string) bool {
	_, brings := u.Install[path.Join(Dir, name)]
	return brings
}

// Tree is a directory tree of a system.
type Tree interface {
	// Look is what stands at a path from the system's root, links not followed; false if
	// nothing does. Of files only the content counts.
	Look(path string) (hostfiles.File, bool, error)
	// Names are names in a directory. Nothing need stand at each of them.
	Names(dir string) ([]string, error)
}

// System is one whose links are worked out.
type System struct {
	Etc   Tree // /etc, by paths as /etc/fstab
	Image Tree // what its image has, by paths as /usr/lib/os-release and /usr/etc/fstab
}

// with is the system with entries, whose unit files have sections [Install].
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

// overlaid is an /etc with entries in it.
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
	}
	// Never empty, which would be a mask.
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
