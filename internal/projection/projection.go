// Package projection handles the entries of a MachineConfig that are outside of /etc. All
// deployments share /var, so it cannot be switched by the rename that switches deployments.
// Instead, each deployment carries its entries for /var in its own /etc (carry.go), and they are
// projected to their real paths early in its boot. First, what another deployment has projected
// and this one does not request is taken back, and what that had replaced is restored. So booting
// another deployment, and going back, switches /var too.
//
// The projection may be killed at any time and repeated, in the same boot or in the boot of another deployment. Before
// anything changes, the record (record.go) says what each path may have.
package projection

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/sepolicy"
)

// Projector projects what a system carries.
type Projector struct {
	Root string // root directory of the running system
	Disk hostfiles.Disk
	Note func(string) // reports to people what was in the way, and where it is now
	// Stays reports to people what is not taken back, and why; nil: Note does.
	Stays func(string)
}

// Project projects what the system carries, and returns the changed paths. Entries that cannot be
// projected are in the error, and are tried again the next time; all others are projected.
//
// What the same set has projected before is not touched: a change by an administrator is drift,
// as below /etc. The set of another deployment replaces it.
//
// There must be no concurrent projection.
func (p *Projector) Project() (changed []string, err error) {
	before, err := load(p.Root)
	if err != nil {
		return nil, err
	}
	carried, err := Read(p.Root)
	if err != nil || len(before.Items) == 0 && len(carried.Entries) == 0 {
		return nil, err
	}
	steps, failed := p.plan(before, carried)
	if before.Set == carried.ID && !slices.ContainsFunc(steps, func(s step) bool { return s.todo }) {
		return nil, failed
	}
	labels, err := sepolicy.RunningLabels(p.Root)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(hostfiles.MakeSecretDir(p.Disk, filepath.Join(p.Root, recordDir)), p.keep(steps)); err != nil {
		return nil, err
	}
	if err := p.save(during(steps, carried.ID)); err != nil {
		return nil, err
	}
	changed, left, err := p.carryOut(steps, labels)
	return changed, errors.Join(failed, err, p.save(record{Set: carried.ID, Items: left}))
}

// carryOut carries out steps, and returns the paths that they changed and the items to record
// afterwards, both sorted. A step that fails is recorded as begun.
func (p *Projector) carryOut(steps []step, labels sepolicy.Labels) (changed []string, left []item, failed error) {
	for _, s := range ordered(steps) {
		done, err := p.do(s, labels)
		switch {
		case err != nil && hostfiles.OfUsers(p.Root, s.item.Path) && hostfiles.Obstructed(err):
			// The owner of a directory decides what is in it, and must not stop anything else.
			p.Note(fmt.Sprintf("cannot project %s, because something that a user owns is in the way: %v", s.item.Path, err))
			left = append(left, s.item)
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("cannot project %s: %w", s.item.Path, err))
			left = append(left, s.item)
		case !s.undo:
			left = append(left, s.settled())
		}
		if done && err == nil {
			changed = append(changed, s.item.Path)
		}
	}
	slices.Sort(changed)
	sort.Slice(left, func(i, j int) bool { return left[i].Path < left[j].Path })
	return changed, left, failed
}

// keep durably keeps the contents that are about to be replaced.
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

// during returns the record for the time in which the steps are carried out. The steps must be
// sorted by path.
func during(steps []step, set hostfiles.Digest) record {
	r := record{Set: set}
	for _, s := range steps {
		r.Items = append(r.Items, s.item)
	}
	return r
}

// ordered returns the steps in the order in which they are carried out: first those that take
// something back, bottom-up, and then the others, top-down.
func ordered(steps []step) []step {
	steps = slices.Clone(steps)
	sort.Slice(steps, func(i, j int) bool {
		a, b := steps[i], steps[j]
		if a.undo && b.undo {
			return a.item.Path > b.item.Path
		}
		return a.undo || !b.undo && a.item.Path < b.item.Path
	})
	return steps
}

// do carries out a step, and reports whether it changed anything.
func (p *Projector) do(s step, labels sepolicy.Labels) (changed bool, err error) {
	if !s.todo {
		return false, nil
	}
	have, there, err := hostfiles.Look(p.Root, s.item.Path)
	if err != nil {
		return false, err
	}
	at, err := p.at(s.item.Path, !s.undo)
	if s.undo && !there && s.item.Was == nil && errors.Is(err, os.ErrNotExist) {
		return false, nil // its directory is gone too
	}
	if err != nil {
		return false, err
	}
	defer at.Close()
	if err := at.clear(); err != nil {
		return false, err
	}
	if s.undo {
		return p.takeBack(s.item, at, have, there, labels)
	}
	want := s.item.last()
	if there && have.Entry == want {
		return false, at.syncPresent(have, there)
	}
	return true, p.put(at, want, Contents(p.Root, p.Disk), have, there, labels)
}

// put puts an entry into its place, with its content from from.
func (p *Projector) put(at *place, want hostfiles.Entry, from hostfiles.Contents, have hostfiles.File, there bool, labels sepolicy.Labels) error {
	f := hostfiles.File{Entry: want}
	var err error
	if want.Kind == hostfiles.KindFile {
		if f.Content, err = from.Read(want.Digest); err != nil {
			return err
		}
	}
	label, err := labels.Of(want.Path, want.Kind.Type())
	if err != nil {
		return err
	}
	return at.put(f, have, there, label)
}

// takeBack restores a place to what it had before the item. What an administrator has changed
// since then stays.
func (p *Projector) takeBack(i item, at *place, have hostfiles.File, there bool, labels sepolicy.Labels) (changed bool, err error) {
	switch {
	case i.asBefore(have.Entry, there):
		return false, at.syncPresent(have, there)
	case there && !i.owns(have.Entry):
		p.noteKept(i, have, "somebody has changed it")
		return false, nil
	case i.Was != nil:
		return true, p.put(at, *i.Was, p.replaced(), have, there, labels)
	}
	err = at.remove()
	if errors.Is(err, errFull) {
		p.noteKept(i, have, err.Error())
		return false, nil
	}
	return true, err
}

// noteKept notes that something is not taken back, unless nobody requested it.
func (p *Projector) noteKept(i item, have hostfiles.File, why string) {
	stays := p.Stays
	if stays == nil {
		stays = p.Note
	}
	if !i.Parent {
		stays(fmt.Sprintf("%s %s stays, though no MachineConfig asks for it any more: %s", have.Kind, i.Path, why))
	}
}

// accounts returns the users and groups of the running system.
func (p *Projector) accounts() (hostfiles.Accounts, error) {
	return hostfiles.ReadAccounts(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(p.Root, name)) })
}

// parents returns the directories on the way to an entry, top-down, without /var.
func parents(name string) []string {
	var all []string
	for dir := path.Dir(name); dir != "/var" && dir != "/"; dir = path.Dir(dir) {
		all = append(all, dir)
	}
	slices.Reverse(all)
	return all
}
