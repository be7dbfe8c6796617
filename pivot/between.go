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

// Between is the plan of a machine that has all of one target, with its packages, and goes to
// another, by rules: as far as that can be said without a machine. What a path is without
// anybody's wish, what links of units are, and what a tag names is not known; of the command
// line only what the targets ask for. An owner's name is no number.
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
	if to.Image.IsZero() != from.Image.IsZero() || !to.Image.Same(from.Image) && to.Image.Reference != from.Image.Reference {
		plan.Image.To = imageName(to.Image)
		plan.Image.Changed = !to.Image.IsZero() // else the one that runs stays
	}
	plan.Changed = plan.newSystem() || line.Changed || len(plan.Entries)+len(plan.Units) > 0
	if !plan.Changed {
		return plan, nil
	}
	plan.Reboots = 1
	var needs []Need
	for i, u := range plan.Units {
		plan.Units[i].Own = u.Own || !plan.newSystem() // else it would be the new image's
		needs = append(needs, needOf(path.Join(enable.Dir, u.Name), rules))
	}
	return plan.Judged(rules, needs...), nil
}

// imageName is an image for people.
func imageName(i Image) string {
	if i.IsZero() {
		return "the image that runs"
	}
	return i.String()
}

// entriesBetween are the changes from entries to others.
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

// unitsBetween are the wishes for units that are others, or new. What was wished and is not any
// more is as the image has it.
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
