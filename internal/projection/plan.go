package projection

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"

	"machine-pivot/internal/hostfiles"
)

// step is what happens at one path.
type step struct {
	item item   // as recorded while the step is in progress
	was  []byte // content of item.Was that must be kept; nil if there is none or it is kept already
	undo bool   // the item is taken back
	todo bool   // something may have to be done; otherwise the record only keeps the item
}

// settled returns the item as recorded after the step.
func (s step) settled() item {
	i := s.item
	if !s.todo {
		return i
	}
	i.Begun, i.Ours = false, i.Ours[len(i.Ours)-1:]
	return i
}

// plan returns the steps after which exactly the carried entries are projected. failed has the
// entries that cannot be projected; their items in the record stay as they are.
func (p *Projector) plan(before record, carried Set) (steps []step, failed error) {
	wanted, held, failed := p.owned(carried.Entries)
	for dir := range p.missing(before, wanted, held) {
		wanted[dir] = hostfiles.NewDirectory(dir, 0o755).Entry
	}
	for _, i := range before.Items {
		switch _, still := wanted[i.Path]; {
		case still:
		case held[i.Path]:
			steps = append(steps, step{item: i})
		default:
			i.Begun = true
			steps = append(steps, step{item: i, undo: true, todo: true})
		}
	}
	for name, want := range wanted {
		i, known := before.item(name)
		s, err := p.planEntry(i, known, want, before.Set == carried.ID)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("cannot project %s: %w", name, err))
			if !known {
				continue
			}
			s = step{item: i}
		}
		s.item.Parent = !carried.Has(name)
		steps = append(steps, s)
	}
	sort.Slice(steps, func(i, j int) bool { return steps[i].item.Path < steps[j].item.Path })
	return steps, failed
}

// owned returns the carried entries by path, with numeric owners. The paths of entries with owners that cannot be
// looked up are in held; their items in the record stay as they are.
func (p *Projector) owned(carried []hostfiles.Entry) (wanted map[string]hostfiles.Entry, held map[string]bool, failed error) {
	wanted, held = map[string]hostfiles.Entry{}, map[string]bool{}
	accounts, err := p.accounts()
	for _, e := range carried {
		owned := e
		if e.Named() {
			if err == nil {
				owned, err = accounts.Owned(e)
			}
			if err != nil {
				failed, held[e.Path], err = errors.Join(failed, err), true, nil
				continue
			}
		}
		wanted[e.Path] = owned
	}
	return wanted, held, failed
}

// missing returns the parent directories of entries that must be made and have no entry of their own: those that do not
// exist, and those that the projection made.
func (p *Projector) missing(before record, wanted map[string]hostfiles.Entry, held map[string]bool) map[string]bool {
	dirs := map[string]bool{} // false if the directory stays as it is
	for name := range wanted {
		for _, dir := range parents(name) {
			if _, asked := wanted[dir]; asked || held[dir] {
				continue
			}
			if i, known := before.item(dir); known {
				dirs[dir] = i.Was == nil
			} else if _, there, err := hostfiles.Look(p.Root, dir); err == nil && !there {
				dirs[dir] = true
			}
		}
	}
	maps.DeleteFunc(dirs, func(_ string, made bool) bool { return !made })
	return dirs
}

// planEntry returns the step that projects an entry. i is its item in the record, if known. same
// says that the last projection was of the same set: then a local change stays, as a boot must not
// undo silently what an administrator has changed.
func (p *Projector) planEntry(i item, known bool, want hostfiles.Entry, same bool) (step, error) {
	done := known && !i.Begun && i.last() == want
	if done && same {
		return step{item: i}, nil
	}
	have, there, err := hostfiles.Look(p.Root, want.Path)
	if err != nil || done && there && have.Entry == want {
		return step{item: i}, err
	}
	s := step{item: i, todo: true}
	s.item.Path, s.item.Begun = want.Path, true
	if known {
		s.item.Ours = slices.DeleteFunc(slices.Clone(i.Ours), func(e hostfiles.Entry) bool { return !there || e != have.Entry || e == want })
		s.item.Ours = append(s.item.Ours, want)
		return s, nil
	}
	s.item.Ours = []hostfiles.Entry{want}
	switch {
	case !there:
	case have.Kind == hostfiles.KindOther && !hostfiles.OfUsers(p.Root, want.Path):
		return s, errors.New("what stands there is no file, directory or link, and could not be put back")
	case !have.Whole(): // it could not be put back, so it is moved aside
	// An entry that is exactly as wanted was written for the same request, by Ignition on a first
	// boot, so it is not kept as the previous one. But a directory may have existed before, so
	// it is, and stays when nothing requests it any more.
	case have.Entry == want && want.Kind != hostfiles.KindDirectory:
	default:
		s.item.Was, s.was = &have.Entry, have.Content
	}
	return s, nil
}
