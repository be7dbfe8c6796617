package kargs

import (
	"fmt"
	"slices"
)

// Change is a requested change of a command line.
type Change struct {
	Old    Line `json:"old"`    // wanted by the configuration applied before; empty on a first boot
	New    Line `json:"new"`    // wanted now
	Delete Line `json:"delete"` // to delete, as KEY=VALUE or KEY; arguments in New are not deleted
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
// machine-config daemon and rpm-ostree find it literally. Apply is idempotent.
func (c Change) Apply(booted Line) (Result, error) {
	e := editor{line: slices.Clone(booted.kernelPart())}
	tail := booted[len(booted.kernelPart()):]
	for _, arg := range surplus(c.Old, c.New) {
		e.removeLast(arg)
	}
	wanted := meanings(c.New)
	for _, arg := range c.Image.Dropped() {
		e.drop(arg, wanted)
	}
	for _, arg := range c.Delete {
		if err := e.delete(arg, wanted); err != nil {
			return Result{}, err
		}
	}
	for _, g := range groups(slices.Concat(c.brought(), c.New)) {
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
}

// removeLast removes the last argument with the meaning of arg, if there is one.
func (e *editor) removeLast(arg string) {
	for i := len(e.line) - 1; i >= 0; i-- {
		if meaning(e.line[i]) == meaning(arg) && !isProtected(e.line[i]) {
			e.removeAt(i)
			return
		}
	}
}

func (e *editor) removeAt(i int) {
	e.deleted = append(e.deleted, e.line[i])
	e.line = slices.Delete(e.line, i, i+1)
}

// delete removes all arguments with the meaning of arg. If arg is a bare key and the line has no
// such flag, delete removes the only argument with that key, whatever its value; it returns an
// error if there are several. Wanted arguments are kept, because they would only be added again.
// It is not an error if there is nothing to remove.
func (e *editor) delete(arg string, wanted map[string]bool) error {
	if wanted[meaning(arg)] {
		return nil
	}
	matches := e.indices(func(have string) bool { return meaning(have) == meaning(arg) })
	if key, _, hasValue := parts(arg); len(matches) == 0 && !hasValue {
		matches = e.indices(func(have string) bool { k, _, _ := parts(have); return k == key && !wanted[meaning(have)] })
		if len(matches) > 1 {
			return fmt.Errorf("cannot delete kernel argument %q: it has %d values; name one as KEY=VALUE", arg, len(matches))
		}
	}
	for _, i := range slices.Backward(matches) {
		if isProtected(e.line[i]) {
			return fmt.Errorf("cannot delete kernel argument %q: the machine needs it to boot", e.line[i])
		}
		e.removeAt(i)
	}
	return nil
}

func (e *editor) indices(match func(string) bool) []int {
	var found []int
	for i, arg := range e.line {
		if match(arg) {
			found = append(found, i)
		}
	}
	return found
}

// ensure makes the arguments of one group take effect.
func (e *editor) ensure(g group) {
	var have []string
	for _, arg := range e.line {
		if groupOf(arg) == g.name {
			have = append(have, meaning(arg))
		}
	}
	wanted := g.meanings()
	if g.rule().inEffect(have, wanted) {
		return
	}
	done := overlap(have, wanted)
	if done == 0 {
		// Arguments in the wrong order would keep their effect, or have it twice.
		for _, arg := range g.args {
			e.removeLast(arg)
		}
	}
	e.appended = append(e.appended, g.args[done:]...)
}

// overlap returns the length of the longest prefix of wanted that is a suffix of have.
func overlap(have, wanted []string) int {
	for n := min(len(have), len(wanted)); n > 0; n-- {
		if slices.Equal(have[len(have)-n:], wanted[:n]) {
			return n
		}
	}
	return 0
}

// spell changes arguments of line to the spelling in wanted if line has them in another spelling
// only, and returns these arguments. line must have an argument with the same meaning for each
// wanted argument.
func spell(line, wanted Line) Line {
	at := map[string][]int{} // indexes of arguments that are not taken yet, by meaning
	for i, arg := range line {
		at[meaning(arg)] = append(at[meaning(arg)], i)
	}
	take := func(arg string, fits func(have string) bool) (place int, ok bool) {
		places := at[meaning(arg)]
		for i, place := range slices.Backward(places) { // the last one is the most likely to count
			if fits(line[place]) {
				at[meaning(arg)] = slices.Delete(places, i, i+1)
				return place, true
			}
		}
		return 0, false
	}
	var others Line
	for _, arg := range distinct(wanted) {
		if _, ok := take(arg, func(have string) bool { return have == arg }); !ok {
			others = append(others, arg)
		}
	}
	var respelled Line
	for _, arg := range others {
		if place, ok := take(arg, func(string) bool { return true }); ok {
			line[place] = arg
			respelled = append(respelled, arg)
		}
	}
	return respelled
}

// distinct returns a line without literal duplicates.
func distinct(line Line) Line {
	seen := map[string]bool{}
	var once Line
	for _, arg := range line {
		if !seen[arg] {
			once = append(once, arg)
		}
		seen[arg] = true
	}
	return once
}

// meanings returns the set of meanings of the arguments of a line.
func meanings(line Line) map[string]bool {
	all := map[string]bool{}
	for _, arg := range line {
		all[meaning(arg)] = true
	}
	return all
}

// surplus returns the arguments that old has more often than wanted, by meaning.
func surplus(old, wanted Line) Line {
	count := map[string]int{}
	for _, arg := range wanted {
		count[meaning(arg)]++
	}
	var rest Line
	for _, arg := range old {
		if count[meaning(arg)]--; count[meaning(arg)] < 0 {
			rest = append(rest, arg)
		}
	}
	return rest
}

// orEmpty returns an empty Line instead of nil, so that it is a list in JSON.
func orEmpty(l Line) Line {
	if l == nil {
		return Line{}
	}
	return l
}
