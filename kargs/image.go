package kargs

import "slices"

// ImageChange has the kernel arguments that two images bring, for a change from one image to the other. The rule is
// bootc's (crates/lib/src/bootc_kargs.rs, compute_apply_kargs_diff): arguments of only the former image are removed,
// and those of only the new image added. Arguments of both stay as they are: the machine may have changed them.
type ImageChange struct {
	Before Line `json:"before"` // arguments of the image for which the present command line was made
	Now    Line `json:"now"`    // arguments of the image for which the new command line is made
}

// Dropped returns the arguments to remove.
func (i *ImageChange) Dropped() Line {
	before, now := i.items()
	return lineOf(without(before, now))
}

// Brought returns the arguments to add.
func (i *ImageChange) Brought() Line {
	before, now := i.items()
	return lineOf(without(now, before))
}

// items returns the items of both images.
func (i *ImageChange) items() (before, now []item) {
	if i == nil {
		return nil, nil
	}
	return items(i.Before), items(i.Now)
}

func lineOf(all []item) Line {
	var line Line
	for _, it := range all {
		line = append(line, it.args...)
	}
	return line
}

// brought returns the image's items to add, except those that the change deletes or wants
// anyway: New, which wanted has, and Delete take precedence over the image.
func (c Change) brought(wanted []item) []item {
	return slices.DeleteFunc(items(c.Image.Brought()), func(it item) bool {
		return hasKey(wanted, it.key) || c.deletes(it)
	})
}

// deletes reports whether Delete names an item.
func (c Change) deletes(it item) bool {
	return slices.ContainsFunc(items(c.Delete), func(gone item) bool { return gone.names(it) })
}
