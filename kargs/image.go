package kargs

// ImageChange has the kernel arguments that two images bring, for a change from one image to the
// other. The rule is bootc's (crates/lib/src/bootc_kargs.rs, compute_apply_kargs_diff):
// arguments of only the former image are removed, arguments of only the new image are added,
// and arguments of both are left as they are, because they may have been changed on the machine.
type ImageChange struct {
	Before Line `json:"before"` // arguments of the image for which the present command line was made
	Now    Line `json:"now"`    // arguments of the image for which the new command line is made
}

// Dropped returns the arguments to remove.
func (i *ImageChange) Dropped() Line {
	if i == nil {
		return nil
	}
	return without(i.Before, meanings(i.Now))
}

// Brought returns the arguments to add.
func (i *ImageChange) Brought() Line {
	if i == nil {
		return nil
	}
	return without(i.Now, meanings(i.Before))
}

// without returns a line without the arguments whose meaning is in known, and without duplicates.
func without(line Line, known map[string]bool) Line {
	var rest Line
	for _, arg := range distinct(line) {
		if !known[meaning(arg)] {
			rest = append(rest, arg)
		}
	}
	return rest
}

// brought returns the image's arguments to add, except those that the change deletes or wants
// anyway: New and Delete take precedence over the image.
func (c Change) brought() Line {
	var rest Line
	for _, arg := range without(c.Image.Brought(), meanings(c.New)) {
		if !c.deletes(arg) {
			rest = append(rest, arg)
		}
	}
	return rest
}

// deletes reports whether Delete has an argument, as KEY=VALUE or by its key.
func (c Change) deletes(arg string) bool {
	key, _, _ := parts(arg)
	for _, gone := range c.Delete {
		if m := meaning(gone); m == meaning(arg) || m == key {
			return true
		}
	}
	return false
}

// drop removes all arguments with the meaning of arg, which is one of the former image. It keeps
// wanted arguments and those that the machine needs to boot.
func (e *editor) drop(arg string, wanted map[string]bool) {
	if wanted[meaning(arg)] {
		return
	}
	for i := len(e.line) - 1; i >= 0; i-- {
		if meaning(e.line[i]) == meaning(arg) && !isProtected(e.line[i]) {
			e.removeAt(i)
		}
	}
}
