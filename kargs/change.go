package kargs

import (
	"fmt"
	"slices"
)

// Change is what a configuration asks of a command line.
type Change struct {
	Old    Line `json:"old"`    // wanted by the configuration applied before; none on a first boot
	New    Line `json:"new"`    // wanted now
	Delete Line `json:"delete"` // to be removed: KEY=VALUE, or KEY alone; not what New wants
	// Literal says that another spelling of an argument of New is a change by itself:
	// somebody compares to the letter.
	Literal bool `json:"literal,omitempty"`
	// Image is what images bring of their own, after which New and Delete still hold;
	// nil: that does not count.
	Image *ImageChange `json:"image,omitempty"`
}

// Result is a change worked out against the command line of a boot entry.
type Result struct {
	Changed  bool `json:"changed"`  // whether the line has to be written at all
	Final    Line `json:"final"`    // the complete new line, for whoever writes one
	Appended Line `json:"appended"` // added at the end, in this order
	Deleted  Line `json:"deleted"`  // removed from where they stood
	// Respelled are arguments of Final, as they were asked for, that stood in
	// their places in another spelling.
	Respelled Line `json:"respelled,omitempty"`
}

// Apply works out the command line that a change makes of booted, the options
// of the boot entry (not /proc/cmdline: on a first boot that lacks root= and
// holds what must not stay).
//
// What is there already and takes effect as asked stays where it stands, so a
// converged line does not change whatever its order; everything the change does
// not name keeps its place and spelling. In the final line each argument of New
// stands to the letter: the machine-config daemon and rpm-ostree find it by that.
// Applying the result again changes nothing.
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
		e.want(g)
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

// removeLast removes the last argument that means the same as arg, if any.
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

// delete removes every argument that means the same as arg. A bare key that
// stands nowhere as such removes the one argument of that key, whatever its
// value; several are ambiguous. What is wanted stays, by its meaning: it would
// only be added again. Nothing to remove is no error.
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

// want makes the arguments of one group take effect.
func (e *editor) want(g group) {
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
		// What stands there in the wrong order would keep its effect or double it.
		for _, arg := range g.args {
			e.removeLast(arg)
		}
	}
	e.appended = append(e.appended, g.args[done:]...)
}

// overlap is the length of the longest head of wanted that have ends with.
func overlap(have, wanted []string) int {
	for n := min(len(have), len(wanted)); n > 0; n-- {
		if slices.Equal(have[len(have)-n:], wanted[:n]) {
			return n
		}
	}
	return 0
}

// spell writes wanted arguments as they were asked for where line has them in
// another spelling only, and returns those. For each wanted argument line has at
// least one that means the same; they can stand for one another.
func spell(line, wanted Line) Line {
	at := map[string][]int{} // the places of arguments that are not taken, by meaning
	for i, arg := range line {
		at[meaning(arg)] = append(at[meaning(arg)], i)
	}
	take := func(arg string, fits func(have string) bool) (place int, ok bool) {
		places := at[meaning(arg)]
		for i, place := range slices.Backward(places) { // of several the last is the likeliest to count
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

// distinct is a line with each argument once, to the letter.
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

// meanings are what the arguments of a line mean.
func meanings(line Line) map[string]bool {
	all := map[string]bool{}
	for _, arg := range line {
		all[meaning(arg)] = true
	}
	return all
}

// surplus is what old asks for oftener than wanted does.
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

// orEmpty keeps an empty list a list when it is written as JSON.
func orEmpty(l Line) Line {
	if l == nil {
		return Line{}
	}
	return l
}
