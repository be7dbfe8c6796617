package pivot

import (
	"slices"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/varentries"
)

// Etc is what a system has at the paths that were asked about: below /etc, and below /var
// what it projects there.
type Etc struct {
	Entries map[string]hostfiles.Entry // what stands there; a path where nothing does is absent
	// Image is what stands there if nobody asks for anything: what the image has in /usr/etc;
	// in /var what was replaced.
	Image    map[string]hostfiles.Entry
	Accounts hostfiles.Accounts // its users and groups
	Units    enable.Resolved    // what the target asks of units, in this system
	// Carried is all that the system carries in it to be projected, whatever was asked about.
	Carried varentries.Set
}

// Project gives a system that does not run yet, at paths outside of /etc, what it will
// project there when it does. Where it projects nothing, nothing is known, nor wanted.
func (e Etc) Project(paths []string) {
	for _, carried := range e.Carried.Entries {
		if !slices.Contains(paths, carried.Path) {
			continue
		}
		if owned, err := e.Accounts.Owned(carried); err == nil { // else the projection will fail
			e.Entries[carried.Path] = owned
		}
	}
}

// change is what has to happen to an /etc that it has an entry; "" is nothing.
func (e Etc) change(want hostfiles.Entry) ChangeAction {
	have, found := e.Entries[want.Path]
	if want.Kind == hostfiles.KindAbsent {
		if found {
			return ChangeRemove
		}
		return ""
	}
	if want.Kind == hostfiles.KindDefault {
		shipped, ships := e.Image[want.Path]
		switch {
		case found == ships && have == shipped:
			return ""
		case ships:
			return ChangeRestore
		}
		return ChangeRemove
	}
	// A name that this system does not know is another owner.
	owned, err := e.Accounts.Owned(want)
	switch {
	case !found:
		return ChangeCreate
	case err != nil || !owned.MetBy(have):
		return ChangeReplace
	}
	return ""
}

// Changes are what has to happen to an /etc that it has entries.
func (e Etc) Changes(wanted []hostfiles.Entry) []EntryChange {
	changes := []EntryChange{}
	for _, want := range wanted {
		if action := e.change(want); action != "" {
			changes = append(changes, EntryChange{Path: want.Path, Kind: want.Kind, Action: action})
		}
	}
	return changes
}

// Of are all entries that a target means in the system: its own, and the links of units.
func (e Etc) Of(target Target) []hostfiles.Entry { return e.Units.Over(target.Entries) }

// unitChanges are the wishes for units that the system does not have come true, or cannot.
func (e Etc) unitChanges(target Target) []UnitChange {
	changes := []UnitChange{}
	for _, w := range target.Units.Wishes {
		differs := e.Units.Wrong[w.Name] != nil || slices.ContainsFunc(e.Units.Entries, func(link hostfiles.Entry) bool {
			return e.Units.By[link.Path] == w.Name && e.change(link) != ""
		})
		if differs {
			changes = append(changes, UnitChange{Wish: w, Own: target.Units.Brings(w.Name)})
		}
	}
	return changes
}

// UnitChange is a wish for a unit whose links are only known in the new system.
type UnitChange struct {
	enable.Wish
	Own bool `json:"own,omitempty"` // its file is asked for too; else it is the new image's
}

// String is what will be done, for people.
func (c UnitChange) String() string {
	if c.Own {
		return c.Wish.String()
	}
	return c.Wish.String() + " of the new image"
}

// ChangeAction is what happens to an entry.
type ChangeAction string

const (
	ChangeCreate  ChangeAction = "create"
	ChangeReplace ChangeAction = "replace" // content, mode, owner or kind
	ChangeRemove  ChangeAction = "remove"
	ChangeRestore ChangeAction = "restore" // what the image has there shows again
)

// EntryChange is one entry that will differ in the new system.
type EntryChange struct {
	Path   string         `json:"path"`
	Kind   hostfiles.Kind `json:"kind,omitempty"` // none: a file
	Action ChangeAction   `json:"action"`
}

func (c EntryChange) entry() hostfiles.Entry { return hostfiles.Entry{Kind: c.Kind, Path: c.Path} }

// What is what happens, in words: nothing is said of the kind of a file.
func (c EntryChange) What() string {
	text, e := string(c.Action), c.entry()
	if e.OnDisk() != e.Path {
		return text + " " + e.Name()
	}
	if c.Kind == hostfiles.KindDirectory || c.Kind == hostfiles.KindLink {
		text += " " + c.Kind.String()
	}
	return text + " " + c.Path
}

// String is what is wrong with an /etc that still needs the change.
func (c EntryChange) String() string {
	wrong := map[ChangeAction]string{
		ChangeCreate: "missing", ChangeReplace: "differs", ChangeRemove: "still there", ChangeRestore: "not what the image has",
	}[c.Action]
	return c.entry().Name() + ": " + wrong
}
