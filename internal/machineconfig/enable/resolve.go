package enable

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"machine-pivot/internal/hostfiles"
)

// Resolved is the result of resolving wishes in one system.
type Resolved struct {
	// Entries are the links that must exist, and those that must be absent, sorted by path.
	Entries []hostfiles.Entry
	// By has the unit that needs an entry, by the entry's path.
	By map[string]string
	// Wrong has why a wish cannot be fulfilled in this system, by the unit's name.
	Wrong map[string]error
}

// Hint is the hint for wishes that cannot be fulfilled.
const Hint = "name a unit that the system has, give it contents, or unmask it (mask: false); or leave it out"

// Err returns all reasons why wishes cannot be fulfilled as one error; nil if there are none.
func (r Resolved) Err() error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(r.Wrong)) {
		all = append(all, fmt.Errorf("unit %s: %w", name, r.Wrong[name]))
	}
	return errors.Join(all...)
}

// Over returns entries with the resolved ones added. A resolved entry replaces one at the same path.
func (r Resolved) Over(entries []hostfiles.Entry) []hostfiles.Entry {
	rest := slices.DeleteFunc(slices.Clone(entries), func(e hostfiles.Entry) bool { return r.By[e.Path] != "" })
	return append(rest, r.Entries...)
}

// Resolve resolves wishes in a system that will have entries, as systemctl would. What is wished for a unit itself has
// the last word. It comes after presets, and counts more than what follows from the wish for its template, or for a
// unit that has it in Also=. So the order of the wishes does not matter. Wishes that cannot be fulfilled are in the
// result; the error is a failure to read the system.
func Resolve(s System, units Units, entries []hostfiles.Entry) (Resolved, error) {
	s.Image = newReading(s.Image)
	s.Etc = newReading(s.with(entries, units.Install).Etc)
	r := &resolver{system: s, asked: byPath(entries), made: map[string]hostfiles.Entry{}, madeIn: map[string][]string{}, disabled: map[string]bool{},
		presets: map[string][]string{}, result: Resolved{By: map[string]string{}, Wrong: map[string]error{}}}
	for _, step := range []struct {
		of func(Wish) bool
		do func(name string) error
	}{
		{func(w Wish) bool { return w.Unmask }, r.unmask},
		{func(w Wish) bool { return w.State == Preset }, r.presetDisabled},
		{func(w Wish) bool { return w.State == Preset }, r.presetEnabled},
		{func(w Wish) bool { return w.State == Disabled }, r.wishDisabled},
		{func(w Wish) bool { return w.State == Enabled }, r.enable},
	} {
		for _, w := range units.Wishes {
			if r.unit = w.Name; !step.of(w) || r.result.Wrong[w.Name] != nil {
				continue
			}
			err := step.do(w.Name)
			if _, reading := errors.AsType[readError](err); reading {
				return Resolved{}, err
			}
			if err != nil {
				r.result.Wrong[w.Name] = err
			}
		}
	}
	for _, at := range slices.Sorted(maps.Keys(r.made)) {
		r.result.Entries = append(r.result.Entries, r.made[at])
	}
	return r.result, nil
}

// readError is a failure to read the system. It is not due to a unit.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

// reading is a tree that caches what it reads and returns readErrors.
type reading struct {
	Tree
	looked map[string]looked
	named  map[string][]string
}

// looked is a result of Look.
type looked struct {
	file  hostfiles.File
	there bool
}

func newReading(t Tree) reading {
	return reading{t, map[string]looked{}, map[string][]string{}}
}

func (t reading) Look(path string) (hostfiles.File, bool, error) {
	if l, known := t.looked[path]; known {
		return l.file, l.there, nil
	}
	file, there, err := t.Tree.Look(path)
	if err == nil {
		t.looked[path] = looked{file, there}
	}
	return file, there, failed(err)
}

func (t reading) Names(dir string) ([]string, error) {
	if names, known := t.named[dir]; known {
		return slices.Clone(names), nil
	}
	names, err := t.Tree.Names(dir)
	if err == nil {
		t.named[dir] = names
	}
	return slices.Clone(names), failed(err)
}

func failed(err error) error {
	if err == nil {
		return nil
	}
	return readError{err}
}

// resolver resolves wishes, one after the other. As a Tree it is the resulting /etc.
type resolver struct {
	system System
	asked  map[string]hostfiles.Entry // the target's entries, by path
	made   map[string]hostfiles.Entry // resolved entries, by path
	madeIn map[string][]string        // names of resolved entries, by directory
	unit   string                     // with a wish that is being resolved

	disabled map[string]bool     // units that a wish of their own disables
	presets  map[string][]string // units that presets enable, by the unit with the wish
	result   Resolved
}

// Look implements Tree.
func (r *resolver) Look(path string) (hostfiles.File, bool, error) {
	if e, made := r.made[path]; made {
		return hostfiles.File{Entry: e}, e.Kind != hostfiles.KindAbsent, nil
	}
	return r.system.Etc.Look(path)
}

// Names implements Tree.
func (r *resolver) Names(dir string) ([]string, error) {
	names, err := r.system.Etc.Names(dir)
	names = append(names, r.madeIn[dir]...)
	slices.Sort(names)
	return slices.Compact(names), err
}

// put adds an entry to the result. It returns an error if the target has another entry at its path.
func (r *resolver) put(e hostfiles.Entry) error {
	if other, asked := r.asked[e.Path]; asked && other.Kind != hostfiles.KindDefault && other != e {
		return fmt.Errorf("it needs %s to be %s, and a %s is asked for there", e.Path, e.Kind, other.Kind)
	}
	if _, known := r.made[e.Path]; !known {
		for at := e.Path; at != Dir; at = path.Dir(at) {
			r.madeIn[path.Dir(at)] = append(r.madeIn[path.Dir(at)], path.Base(at))
		}
	}
	r.made[e.Path], r.result.By[e.Path] = e, r.unit
	return nil
}

// unmask removes what masks a unit in /etc.
func (r *resolver) unmask(name string) error {
	at := path.Join(Dir, name)
	if err := r.remove(at, masks); err != nil {
		return err
	}
	if _, err := r.find(name); errors.Is(err, errMasked) {
		return fmt.Errorf("%w by the image, in %s", err, ImageDir)
	}
	return nil
}

// remove adds the absence of a path to the result, if meant accepts the file at the path in /etc, or
// the image's file if /etc has none.
func (r *resolver) remove(at string, meant func(hostfiles.File) bool) error {
	file, there, err := r.Look(at)
	if err == nil && !there {
		file, there, err = r.system.Image.Look("/usr" + at)
	}
	if err != nil || !there || !meant(file) {
		return err
	}
	return r.put(hostfiles.Absent(at).Entry)
}

// wishDisabled disables a unit by its own wish.
func (r *resolver) wishDisabled(name string) error {
	r.disabled[name] = true
	if unit, err := r.find(name); err == nil {
		r.disabled[unit.name] = true
	}
	return r.disable(name)
}

// staysDisabled reports whether a wish disables a unit that another wish would enable: the unit
// itself, or the template of an instance in Also=.
func (r *resolver) staysDisabled(name string, also bool) bool {
	template, _, isInstance := cutInstance(name)
	return r.disabled[name] || also && isInstance && r.disabled[template]
}

// enable adds the links of a unit, and of units that are enabled together with it.
func (r *resolver) enable(name string) error {
	done := map[string]bool{}
	todo := []string{name}
	for ; len(todo) > 0; todo = todo[1:] {
		if done[todo[0]] {
			continue
		}
		done[todo[0]] = true
		unit, err := r.find(todo[0])
		also := todo[0] != name
		if also && (errors.Is(err, errNoUnit) || errors.Is(err, errMasked)) {
			continue // systemctl only warns about this
		}
		if err != nil {
			return err
		}
		install, err := Of(unit.name, unit.file, unit.text)
		if err != nil {
			return err
		}
		if r.staysDisabled(install.Name, also) {
			continue
		}
		for _, at := range slices.Sorted(maps.Keys(install.Links)) {
			if err := r.link(at, install.Links[at]); err != nil {
				return err
			}
		}
		todo = append(todo, install.Also...)
	}
	return nil
}

// link adds a link. An existing link with the same absolute target is kept as it is, also if another
// wish has removed it.
func (r *resolver) link(at, to string) error {
	had, existed, err := r.system.Etc.Look(at)
	if err != nil {
		return err
	}
	have, there, err := r.Look(at)
	switch {
	case err != nil:
		return err
	case existed && had.Kind == hostfiles.KindLink && absolute(at, had.Target) == to:
		to = had.Target
	case there && path.Dir(at) == Dir: // an alias; links of dependencies may be replaced
		return fmt.Errorf("its alias %s is taken by a %s %s", path.Base(at), have.Kind, have.Target)
	}
	return r.put(hostfiles.NewLink(at, to).Entry)
}

// disable adds the absence of all links that enable a unit, or another one together with it: links with its name, links
// to its file, and links to such links. The unit need not exist.
func (r *resolver) disable(name string) error {
	names := map[string]bool{}
	if err := r.collect(names, name); err != nil {
		return err
	}
	dirs, err := r.dirs()
	if err != nil {
		return err
	}
	for before := 0; len(names) > before; {
		before = len(names)
		for _, dir := range dirs {
			if err := r.unlink(dir, names); err != nil {
				return err
			}
		}
	}
	return nil
}

// dirs returns the directories with links that enable units.
func (r *resolver) dirs() ([]string, error) {
	dirs := []string{Dir}
	names, err := r.allNames(Dir)
	for _, name := range names {
		if slices.Contains(slices.Collect(maps.Values(dependencies)), path.Ext(name)) {
			dirs = append(dirs, path.Join(Dir, name))
		}
	}
	return dirs, err
}

// allNames returns the names in a directory of /etc and in the image's /usr/etc.
func (r *resolver) allNames(dir string) ([]string, error) {
	names, err := r.Names(dir)
	if err != nil {
		return nil, err
	}
	images, err := r.system.Image.Names("/usr" + dir)
	names = append(names, images...)
	slices.Sort(names)
	return slices.Compact(names), err
}

// collect adds the names of a unit, and of units that are enabled together with it, to names.
func (r *resolver) collect(names map[string]bool, name string) error {
	if names[name] {
		return nil
	}
	names[name] = true
	unit, err := r.find(name)
	if errors.Is(err, errNoUnit) || errors.Is(err, errMasked) {
		return nil
	}
	if err != nil {
		return err
	}
	names[unit.name] = true
	install, err := Of(unit.name, unit.file, unit.text)
	if err != nil && !errors.Is(err, errNoInstance) {
		return err
	}
	for _, also := range install.Also {
		if err := r.collect(names, also); err != nil {
			return err
		}
	}
	return nil
}

// unlink adds the absence of the links in a directory that enable units. It adds removed aliases to
// names, since links to an alias enable the unit too.
func (r *resolver) unlink(dir string, names map[string]bool) error {
	all, err := r.allNames(dir)
	if err != nil {
		return err
	}
	for _, name := range all {
		at := path.Join(dir, name)
		err := r.remove(at, func(f hostfiles.File) bool {
			if f.Kind != hostfiles.KindLink || masks(f) {
				return false
			}
			// A link in Dir with the unit's own name is the unit itself.
			enables := names[path.Base(f.Target)] || names[name] && dir != Dir
			if enables && dir == Dir {
				names[name] = true
			}
			return enables
		})
		if err != nil {
			return err
		}
	}
	return nil
}
