package pivot

import (
	"path"
	"slices"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/kargs"
)

// Between returns the plan for a move from one target to another, for a machine with these packages. It is judged by
// rules as far as that is possible without the machine. Unknown are the image's own entries, the links of units, what a
// tag points to, and all of the command line that the targets do not request. Owners by name are compared as names.
func Between(from, to Target, packages SystemPackages, rules disruption.Rules) (Plan, error) {
	state := State{Booted: Deployment{Image: from.Image, Options: from.Kargs.New}}
	line, err := kargs.Change{Old: from.Kargs.New, New: to.Kargs.New, Literal: to.Kargs.Literal}.Apply(from.Kargs.New)
	if err != nil {
		return Plan{}, fault.New(fault.BadInput, "%w", err)
	}
	plan := Plan{
		Image: ImageChange{From: imageName(from.Image), To: imageName(from.Image)},
		Kargs: line, Entries: entriesBetween(from.Entries, to.Entries), Units: unitsBetween(from.Units, to.Units),
		Packages: packages.Changes(to.Packages), Notes: []string{},
		state: state, target: to,
	}
	if to.Image.IsZero() != from.Image.IsZero() || !to.Image.Same(from.Image) && to.Image.Name != from.Image.Name {
		plan.Image.To = imageName(to.Image)
		plan.Image.Changed = !to.Image.IsZero() // otherwise the booted image stays
	}
	plan.Changed = plan.newSystem() || line.Changed || len(plan.Entries)+len(plan.Units) > 0
	if !plan.Changed {
		return plan, nil
	}
	plan.Reboots = 1
	var needs []Need
	for i, u := range plan.Units {
		plan.Units[i].Own = u.Own || !plan.newSystem() // otherwise String would say "of the new image"
		needs = append(needs, needOf(path.Join(enable.Dir, u.Name), rules))
	}
	return plan.Judged(rules, needs...), nil
}

// imageName returns the image for display.
func imageName(i Image) string {
	if i.IsZero() {
		return "the image that runs"
	}
	return i.String()
}

// entriesBetween returns the changes that turn the entries from into the entries to.
func entriesBetween(from, to []hostfiles.Entry) []EntryChange {
	changes := []EntryChange{}
	at := func(all []hostfiles.Entry, path string) int {
		return slices.IndexFunc(all, func(e hostfiles.Entry) bool { return e.Path == path })
	}
	for _, e := range to {
		switch i := at(from, e.Path); {
		case i < 0:
			changes = append(changes, EntryChange{Path: e.Path, Kind: e.Kind, Action: ChangeCreate})
		case from[i] != e:
			changes = append(changes, EntryChange{Path: e.Path, Kind: e.Kind, Action: ChangeReplace})
		}
	}
	for _, e := range from {
		if at(to, e.Path) < 0 {
			changes = append(changes, EntryChange{Path: e.Path, Kind: e.Kind, Action: ChangeRemove})
		}
	}
	return changes
}

// unitsBetween returns the wishes for units that are new or differ. A unit without a wish any
// more returns to the image's default.
func unitsBetween(from, to enable.Units) []UnitChange {
	changes := []UnitChange{}
	for _, w := range to.Wishes {
		if !slices.Contains(from.Wishes, w) {
			changes = append(changes, UnitChange{Wish: w, Own: to.Brings(w.Name)})
		}
	}
	for _, w := range from.Wishes {
		if !slices.ContainsFunc(to.Wishes, func(other enable.Wish) bool { return other.Name == w.Name }) {
			changes = append(changes, UnitChange{Wish: enable.Wish{Name: w.Name}, Own: true})
		}
	}
	return changes
}
