// Package projection makes /var what the system that runs asks of it. All deployments share
// /var, so no rename can switch it with them: each deployment carries its entries in its
// own /etc (package varentries), and they are projected early in its boot. What another
// deployment had projected, and this one does not ask for, is taken back first, and what
// that had replaced is put back. So a switch and the way back switch /var too.
//
// It can be killed at any moment and started again, in the same boot or in that of another
// deployment: the record (record.go) says what may stand where before anything is touched.
package projection

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/varentries"
)

// Projector projects what a system carries.
type Projector struct {
	Root string // the root directory of the system, which runs
	Disk hostfiles.Disk
	Note func(string) // what stays and why, for people
}

// Project makes /var what the system asks of it, and returns the paths that it changed.
// An entry that cannot be is in the error, and tried again the next time; the others are
// as they should be. What this system had projected is left as it is: if somebody has
// changed it, that is drift, as below /etc. Another system has it as it asks for it.
//
// There must be no other at work.
func (p *Projector) Project() (changed []string, err error) {
	before, err := load(p.Root)
	if err != nil {
		return nil, err
	}
	carried, err := varentries.Read(p.Root)
	if err != nil || len(before.Items) == 0 && len(carried.Entries) == 0 {
		return nil, err
	}
	steps, failed := p.plan(before, carried)
	if before.Set == carried.ID && !slices.ContainsFunc(steps, func(s step) bool { return s.todo }) {
		return nil, failed
	}
	labels, err := hostfiles.RunningLabels(p.Root)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.makeDir(), p.keep(steps)); err != nil {
		return nil, err
	}
	if err := p.save(during(steps, carried.ID)); err != nil {
		return nil, err
	}
	changed, left, err := p.carryOut(steps, labels)
	return changed, errors.Join(failed, err, p.save(record{Set: carried.ID, Items: left}))
}

// carryOut does steps, and returns the paths that they changed and what is recorded after
// them, both in order. What could not be done is recorded as begun.
func (p *Projector) carryOut(steps []step, labels hostfiles.Labels) (changed []string, left []item, failed error) {
	for _, s := range inTurn(steps) {
		done, err := p.do(s, labels)
		switch {
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("cannot project %s: %w", s.item.Path, err))
			left = append(left, s.item)
		case !s.leaves:
			left = append(left, s.settled())
		}
		if done && err == nil {
			changed = append(changed, s.item.Path)
		}
	}
	slices.Sort(changed)
	slices.SortFunc(left, func(a, b item) int { return cmp.Compare(a.Path, b.Path) })
	return changed, left, failed
}

// keep keeps the contents that are about to be replaced, durably.
func (p *Projector) keep(steps []step) error {
	for _, s := range steps {
		if s.was == nil {
			continue
		}
		if err := p.replaced().Keep(s.was); err != nil {
			return fmt.Errorf("cannot keep what stands at %s: %w", s.item.Path, err)
		}
	}
	return nil
}

// during is the record for as long as the steps, which are in order, are being done.
func during(steps []step, set hostfiles.Digest) record {
	r := record{Set: set}
	for _, s := range steps {
		r.Items = append(r.Items, s.item)
	}
	return r
}

// inTurn are the steps in the order in which they are done: what leaves from the bottom
// up, and then what comes from the top down.
func inTurn(steps []step) []step {
	return slices.SortedFunc(slices.Values(steps), func(a, b step) int {
		switch {
		case a.leaves != b.leaves:
			return map[bool]int{true: -1, false: 1}[a.leaves]
		case a.leaves:
			return cmp.Compare(b.item.Path, a.item.Path)
		}
		return cmp.Compare(a.item.Path, b.item.Path)
	})
}

// do does a step, and reports whether anything changed by it.
func (p *Projector) do(s step, labels hostfiles.Labels) (changed bool, err error) {
	if !s.todo {
		return false, nil
	}
	have, there, err := Look(p.Root, s.item.Path)
	if err != nil {
		return false, err
	}
	at, err := p.at(s.item.Path)
	if s.leaves && !there && s.item.Was == nil && errors.Is(err, os.ErrNotExist) {
		return false, nil // its directory is gone, too
	}
	if err != nil {
		return false, err
	}
	defer at.Close()
	if err := at.clear(); err != nil {
		return false, err
	}
	if s.leaves {
		return p.takeBack(s.item, at, have, there, labels)
	}
	want := s.item.last()
	if there && have.Entry == want {
		return false, at.settle(have, there)
	}
	return true, p.put(at, want, varentries.Contents(p.Root, p.Disk), have, there, labels)
}

// put makes an entry stand in its place.
func (p *Projector) put(at *place, want hostfiles.Entry, from hostfiles.Contents, have hostfiles.File, there bool, labels hostfiles.Labels) error {
	f := hostfiles.File{Entry: want}
	var err error
	if want.Kind == hostfiles.KindFile {
		if f.Content, err = from.Read(want.Digest); err != nil {
			return err
		}
	}
	label, err := labels.Of(want)
	if err != nil {
		return err
	}
	return at.put(f, have, there, label)
}

// takeBack makes a place what it was before the item. What somebody has changed since is
// theirs, and stays.
func (p *Projector) takeBack(i item, at *place, have hostfiles.File, there bool, labels hostfiles.Labels) (changed bool, err error) {
	switch {
	case i.asBefore(have.Entry, there):
		return false, at.settle(have, there)
	case there && !i.is(have.Entry):
		p.stays(i, have, "somebody has changed it")
		return false, nil
	case i.Was != nil:
		return true, p.put(at, *i.Was, p.replaced(), have, there, labels)
	}
	err = at.remove()
	if errors.Is(err, errFull) {
		p.stays(i, have, err.Error())
		return false, nil
	}
	return true, err
}

// stays says that something is not taken back.
func (p *Projector) stays(i item, have hostfiles.File, why string) {
	if !i.Parent {
		p.Note(fmt.Sprintf("%s %s stays, though no MachineConfig asks for it any more: %s", have.Kind, i.Path, why))
	}
}

// accounts are those of the system that runs.
func (p *Projector) accounts() (hostfiles.Accounts, error) {
	return hostfiles.ReadAccounts(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(p.Root, name)) })
}

// parents are the directories on the way to an entry, from the top down, without /var.
func parents(name string) []string {
	var all []string
	for dir := path.Dir(name); dir != "/var" && dir != "/"; dir = path.Dir(dir) {
		all = append(all, dir)
	}
	slices.Reverse(all)
	return all
}
