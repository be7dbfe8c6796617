package kargs

import (
	"fmt"
	"slices"
)

// Change is what a configuration asks of a command line.
type Change struct {
	Old    Line // wanted by the configuration applied before; none on a first boot
	New    Line // wanted now
	Delete Line // to be removed: KEY=VALUE, or KEY alone
}

// Result is a change worked out against the command line of a boot entry.
type Result struct {
	Changed  bool `json:"changed"`
	Final    Line `json:"final"`    // the complete new line
	Appended Line `json:"appended"` // added at the end, in this order
	Deleted  Line `json:"deleted"`  // removed from where they stood
}

// Apply works out the command line that a change makes of booted, the options
// of the boot entry (not /proc/cmdline: on a first boot that lacks root= and
// holds what must not stay).
//
// What is there already and takes effect as asked is left where it stands, so a
// converged line does not change whatever its order; everything the change does
// not name keeps its place and spelling. Applying the result again changes
// nothing.
func (c Change) Apply(booted Line) (Result, error) {
	e := editor{line: slices.Clone(booted.kernelPart())}
	tail := booted[len(booted.kernelPart()):]
	for _, arg := range surplus(c.Old, c.New) {
		e.removeLast(arg)
	}
	for _, arg := range c.Delete {
		if err := e.delete(arg); err != nil {
			return Result{}, err
		}
	}
	for _, g := range groups(c.New) {
		e.want(g)
	}
	final := slices.Concat(e.line, e.appended, tail)
	return Result{
		Changed:  !final.Equal(booted),
		Final:    orEmpty(final),
		Appended: orEmpty(e.appended),
		Deleted:  orEmpty(e.deleted),
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
// value; several are ambiguous. Nothing to remove is no error.
func (e *editor) delete(arg string) error {
	matches := e.indices(func(have string) bool { return meaning(have) == meaning(arg) })
	if key, _, hasValue := parts(arg); len(matches) == 0 && !hasValue {
		matches = e.indices(func(have string) bool { k, _, _ := parts(have); return k == key })
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
