package kargs

import "slices"

// Between returns the change from one line to another, by whole groups. If the items of a group differ in meaning or
// order, New has all items that the other line has, and Old those that it lacks. Single arguments would not do: the
// order within a group counts, and each "hugepages=" belongs to the size before it. Groups that no configuration may
// set are left out: they belong to a deployment.
//
// Applied to the line to which it leads, the change changes nothing.
func Between(from, to Line) Change {
	var change Change
	before, after := items(from.kernelPart()), items(to.kernelPart())
	seen := map[string]bool{}
	for _, it := range slices.Concat(before, after) {
		if seen[it.group] {
			continue
		}
		seen[it.group] = true
		was, is := ofGroup(before, it.group), ofGroup(after, it.group)
		if sameItems(was, is) || Check(slices.Concat(lineOf(was), lineOf(is))...).Failed() {
			continue
		}
		own := Change{Old: lineOf(without(was, is)), New: lineOf(is)}
		if r, err := own.Apply(to); err != nil || r.Changed {
			continue // an item is there twice in a row, which no change asks for
		}
		change.Old, change.New = append(change.Old, own.Old...), append(change.New, own.New...)
	}
	return change
}

func ofGroup(all []item, group string) []item {
	return slices.DeleteFunc(slices.Clone(all), func(it item) bool { return it.group != group })
}
