package kargs

import (
	"fmt"
	"slices"
)

// Change is a requested change of a command line.
type Change struct {
	Old    Line `json:"old"`    // wanted by the configuration applied before; empty on a first boot
	New    Line `json:"new"`    // wanted now
	Delete Line `json:"delete"` // to delete, as KEY=VALUE or KEY; a size of huge pages with its number; what is in New is not deleted
	// Literal makes a different spelling of an argument in New a change by itself, for a tool
	// that compares literally.
	Literal bool `json:"literal,omitempty"`
	// Image has the arguments that images bring; New and Delete take precedence. Nil ignores the
	// images' arguments.
	Image *ImageChange `json:"image,omitempty"`
}

// Result is the result of applying a change to the command line of a boot entry.
type Result struct {
	Changed  bool `json:"changed"`  // the line must be written
	Final    Line `json:"final"`    // the complete new line
	Appended Line `json:"appended"` // added at the end, in this order
	Deleted  Line `json:"deleted"`  // removed
	// Respelled are arguments of Final, as requested, that had another spelling before.
	Respelled Line `json:"respelled,omitempty"`
}

// Apply returns the command line that results from applying the change to booted, the options
// of the boot entry. booted must not be /proc/cmdline, which on a first boot lacks root= and has
// arguments that must not be kept.
//
// Arguments that take effect as requested keep their place, so that a converged line does not
// change, whatever its order. Arguments that the change does not name keep their place and
// spelling. In the final line each argument of New is spelled as in New, because the
// machine-config daemon and rpm-ostree find it literally.
//
// Apply is idempotent: applied to its own result, the same change changes nothing. What is
// removed is therefore decided by what it is (all its instances go, or none), never by how many
// there are: a number would be reduced again each time.
func (c Change) Apply(booted Line) (Result, error) {
	wanted := items(c.New)
	toHave := slices.Concat(c.brought(wanted), wanted)
	e := editor{line: slices.Clone(booted.kernelPart()), wanted: lineOf(toHave)}
	tail := booted[len(booted.kernelPart()):]
	before, now := c.Image.items()
	for _, gone := range without(slices.Concat(items(c.Old), before), slices.Concat(wanted, now)) {
		e.remove(gone)
	}
	for _, gone := range items(c.Delete) {
		if err := e.delete(gone, wanted); err != nil {
			return Result{}, err
		}
	}
	for _, g := range groups(toHave) {
		e.ensure(g)
	}
	final := slices.Concat(e.line, e.appended, tail)
	changed := !final.Equal(booted)
	respelled := spell(final.kernelPart(), c.New)
	return Result{
		Changed:   changed || c.Literal && len(respelled) > 0,
		Final:     orEmpty(final),
		Appended:  orEmpty(e.appended),
		Deleted:   orEmpty(e.deleted),
		Respelled: respelled,
	}, nil
}

// editor is a command line being changed.
type editor struct {
	line, appended, deleted Line
	wanted                  Line
}

// remove removes each instance of an item, unless the machine needs it to boot.
func (e *editor) remove(gone item) {
	for _, it := range slices.Backward(items(e.line)) {
		if it.meaning() == gone.meaning() && !e.needs(it) {
			e.removeItem(it)
		}
	}
}

// removeItem removes an item that was found on the line as it is now.
func (e *editor) removeItem(it item) {
	e.deleted = append(e.deleted, it.args...)
	for _, i := range slices.Backward(it.at) {
		e.line = slices.Delete(e.line, i, i+1)
	}
}

// needs reports whether the machine does not find its system without an item of the line. A
// root= can go if another one is there or wanted, as where a multipath device replaces a disk.
func (e *editor) needs(it item) bool {
	if it.group == "root" {
		other := func(arg string) bool { return groupOf(arg) == "root" && meaning(arg) != it.meaning() }
		return !slices.ContainsFunc(e.line, other) && !slices.ContainsFunc(e.wanted, other)
	}
	return isProtected(it.args[0])
}

// delete removes all items that an item of Delete names. A bare key stands for the one item with that
// key, whatever its value; delete returns an error if there are different ones. Wanted items are
// kept, because they would only be added again. It is not an error if there is nothing to remove.
func (e *editor) delete(gone item, wanted []item) error {
	isWanted := func(it item) bool {
		return slices.ContainsFunc(wanted, func(w item) bool { return w.meaning() == it.meaning() })
	}
	if isWanted(gone) {
		return nil
	}
	matches := slices.DeleteFunc(items(e.line), func(it item) bool { return !gone.names(it) || isWanted(it) })
	if _, _, hasValue := parts(gone.args[0]); !hasValue {
		found := map[string]bool{}
		for _, it := range matches {
			found[it.meaning()] = true
		}
		if len(found) > 1 {
			return fmt.Errorf("cannot delete kernel argument %q: it has %d values; name one as KEY=VALUE", gone.args[0], len(found))
		}
	}
	for _, it := range slices.Backward(matches) {
		if isProtected(it.args[0]) {
			return fmt.Errorf("cannot delete kernel argument %q: the machine needs it to boot", it.args[0])
		}
		e.removeItem(it)
	}
	return nil
}

// ensure makes the items of one group take effect. Those that do already keep their place.
func (e *editor) ensure(g group) {
	have := slices.DeleteFunc(items(e.line), func(it item) bool { return it.group != g.name })
	wanted := g.placed(have)
	stay := g.rule().inEffect(have, wanted)
	missing := wanted[len(stay):]
	for i, it := range slices.Backward(have) {
		if !slices.Contains(stay, i) && hasKey(missing, it.key) && !e.needs(it) {
			e.removeItem(it)
		}
	}
	for _, it := range missing {
		e.appended = append(e.appended, it.args...)
	}
}

// orEmpty returns an empty Line instead of nil, so that it is a list in JSON.
func orEmpty(l Line) Line {
	if l == nil {
		return Line{}
	}
	return l
}
