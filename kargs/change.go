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
	e, err := c.edit(booted, (*editor).delete)
	if err != nil {
		return Result{}, err
	}
	tail := booted[len(booted.kernelPart()):]
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

// Differs returns how the command line of a running kernel, such as /proc/cmdline, differs from what the change
// leads to: what is not in effect, and what should be gone. What the change does not name is no difference, nor is
// what the boot loader writes, or the machine needs to boot.
func (c Change) Differs(running Line) (missing, extra Line) {
	e, _ := c.edit(running, func(e *editor, gone item, wanted []item) error {
		for _, it := range slices.Backward(e.named(gone, wanted)) {
			if !isProtected(it.args[0]) {
				e.removeItem(it)
			}
		}
		return nil
	})
	policy := DefaultPolicy()
	return e.appended, slices.DeleteFunc(e.deleted, func(arg string) bool {
		missing := slices.ContainsFunc(e.appended, func(a string) bool { return meaning(a) == meaning(arg) })
		return missing || policy.decisive(arg).verdict == forbid
	})
}

// edit carries out the change on a line, with a function that removes what an item of Delete names.
func (c Change) edit(line Line, remove func(e *editor, gone item, wanted []item) error) (*editor, error) {
	wanted := items(c.New)
	toHave := slices.Concat(c.brought(wanted), wanted)
	e := &editor{line: slices.Clone(line.kernelPart()), wanted: lineOf(toHave)}
	before, now := c.Image.items()
	for _, gone := range without(slices.Concat(items(c.Old), before), slices.Concat(wanted, now)) {
		e.remove(gone)
	}
	for _, gone := range items(c.Delete) {
		if err := remove(e, gone, wanted); err != nil {
			return e, err
		}
	}
	for _, g := range groups(toHave) {
		e.ensure(g)
	}
	return e, nil
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

// named returns the items that an item of Delete names, but for wanted ones: those would only be added again.
func (e *editor) named(gone item, wanted []item) []item {
	isWanted := func(it item) bool {
		return slices.ContainsFunc(wanted, func(w item) bool { return w.meaning() == it.meaning() })
	}
	if isWanted(gone) {
		return nil
	}
	return slices.DeleteFunc(items(e.line), func(it item) bool { return !gone.names(it) || isWanted(it) })
}

// delete removes all items that an item of Delete names. A bare key stands for the one item with that
// key, whatever its value; delete returns an error if there are different ones. It is not an error if there is
// nothing to remove.
func (e *editor) delete(gone item, wanted []item) error {
	matches := e.named(gone, wanted)
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
