package pivot

import (
	"slices"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/projection"
)

// Etc is what a system has at a target's paths: below /etc, and those below /var that it
// projects.
type Etc struct {
	Entries map[string]hostfiles.Entry // by path; a path without an entry is missing
	// Image is what the paths have by default: the image's entry in /usr/etc, or in /var what
	// the projection has replaced.
	Image    map[string]hostfiles.Entry
	Accounts hostfiles.Accounts // the system's users and groups
	Units    enable.Resolved    // the target's wishes for units, resolved in this system
	// Carried are all entries that the system carries in its /etc to project them, whatever the
	// target names.
	Carried projection.Set
	// Users are the paths in directories that anybody but root may write.
	Users map[string]bool
}

// usersDecide reports whether users may change an entry at any time: it is theirs, or in a directory
// that they may write.
func (e Etc) usersDecide(want hostfiles.Entry) bool {
	owned := want.User != "" || want.UID != 0
	ofGroup := (want.Group != "" || want.GID != 0) && want.Mode&0o020 != 0
	return owned || ofGroup || want.Mode&0o002 != 0 && want.Kind != hostfiles.KindLink || e.Users[want.Path]
}

// Project adds to Entries what a system that does not run yet will project at those of paths
// that it carries. About other paths outside of /etc nothing is known, and nothing is wanted.
func (e Etc) Project(paths []string) {
	for _, carried := range e.Carried.Entries {
		if !slices.Contains(paths, carried.Path) {
			continue
		}
		if owned, err := e.Accounts.Owned(carried); err == nil { // otherwise the projection will fail
			e.Entries[carried.Path] = owned
		}
	}
}

// change returns what has to be done so that the system has an entry; "" if nothing.
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
	// An owner's name that this system does not know counts as a difference.
	owned, err := e.Accounts.Owned(want)
	switch {
	case !found:
		return ChangeCreate
	case err != nil || !owned.MetBy(have):
		return ChangeReplace
	}
	return ""
}

// Changes returns what has to be done so that the system has the wanted entries.
func (e Etc) Changes(wanted []hostfiles.Entry) []EntryChange {
	changes := []EntryChange{}
	for _, want := range wanted {
		if action := e.change(want); action != "" {
			changes = append(changes, EntryChange{Path: want.Path, Kind: want.Kind, Action: action})
		}
	}
	return changes
}

// Of returns all entries of a target in this system: its own, and the links of its units.
func (e Etc) Of(target Target) []hostfiles.Entry { return e.Units.Over(target.Entries) }

// unitChanges returns the target's wishes for units that this system does not fulfill, or cannot.
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

// UnitChange is a wish for a unit with links that are only known in the new system.
type UnitChange struct {
	enable.Wish
	Own bool `json:"own,omitempty"` // the target has the unit's file; otherwise the new image has it
}

// String returns the change for display.
func (c UnitChange) String() string {
	if c.Own {
		return c.Wish.String()
	}
	return c.Wish.String() + " of the new image"
}

// ChangeAction is the change of one entry.
type ChangeAction string

const (
	ChangeCreate  ChangeAction = "create"
	ChangeReplace ChangeAction = "replace" // content, mode, owner or kind
	ChangeRemove  ChangeAction = "remove"
	ChangeRestore ChangeAction = "restore" // back to what the image has
)

// EntryChange is the change of one entry in the new system.
type EntryChange struct {
	Path   string         `json:"path"`
	Kind   hostfiles.Kind `json:"kind,omitempty"` // "" is a file
	Action ChangeAction   `json:"action"`
}

func (c EntryChange) entry() hostfiles.Entry { return hostfiles.Entry{Kind: c.Kind, Path: c.Path} }

// What returns the change for display. It names the kind of an entry unless it is a file.
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

// String returns what is wrong with a system that still needs the change.
func (c EntryChange) String() string {
	wrong := map[ChangeAction]string{
		ChangeCreate: "missing", ChangeReplace: "differs", ChangeRemove: "still there", ChangeRestore: "not what the image has",
	}[c.Action]
	return c.entry().Name() + ": " + wrong
}
