package kargs

// ImageChange is what a move from one image to another means for the kernel
// arguments that images bring of their own. The rule is bootc's
// (crates/lib/src/bootc_kargs.rs, compute_apply_kargs_diff): what only the image
// before brought goes, what only the new one brings comes, and what both bring stays
// as somebody may have changed it on the machine.
type ImageChange struct {
	Before Line `json:"before"` // what the image brings that the command line was made with
	Now    Line `json:"now"`    // what the image brings that it is made for
}

// Dropped are the arguments that go.
func (i *ImageChange) Dropped() Line {
	if i == nil {
		return nil
	}
	return without(i.Before, meanings(i.Now))
}

// Brought are the arguments that come.
func (i *ImageChange) Brought() Line {
	if i == nil {
		return nil
	}
	return without(i.Now, meanings(i.Before))
}

// without is a line without the arguments that mean one of those known, and each
// other one once.
func without(line Line, known map[string]bool) Line {
	var rest Line
	for _, arg := range distinct(line) {
		if !known[meaning(arg)] {
			rest = append(rest, arg)
		}
	}
	return rest
}

// brought are the image's arguments that nothing speaks against: an image's say is the
// least, after what is to be deleted and what is wanted anyway.
func (c Change) brought() Line {
	var rest Line
	for _, arg := range without(c.Image.Brought(), meanings(c.New)) {
		if !c.deletes(arg) {
			rest = append(rest, arg)
		}
	}
	return rest
}

// deletes reports whether an argument is named for deletion, by its value or by its key.
func (c Change) deletes(arg string) bool {
	key, _, _ := parts(arg)
	for _, gone := range c.Delete {
		if m := meaning(gone); m == meaning(arg) || m == key {
			return true
		}
	}
	return false
}

// drop removes every argument that means the same as one of the former image's, but
// for what is wanted and what the machine boots by.
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
