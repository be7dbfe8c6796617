package projection

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/varentries"
)

// step is what happens at one path.
type step struct {
	item   item   // as it is recorded meanwhile
	was    []byte // content of Item.Was that has to be kept; nil: none, or it is kept
	leaves bool   // it is taken back
	todo   bool   // something may have to be done; else the item is only carried on
}

// settled is the item once its step is done.
func (s step) settled() item {
	i := s.item
	if !s.todo {
		return i
	}
	i.Begun, i.Ours = false, i.Ours[len(i.Ours)-1:]
	return i
}

// plan is what has to happen so that of what is projected all is there that is carried, and
// no more. The error names what cannot be; what is recorded of that stays.
func (p *Projector) plan(before record, carried varentries.Set) (steps []step, failed error) {
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
			steps = append(steps, step{item: i, leaves: true, todo: true})
		}
	}
	for name, want := range wanted {
		i, known := before.item(name)
		s, err := p.come(i, known, want, before.Set == carried.ID)
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
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.item.Path, b.item.Path) })
	return steps, failed
}

// owned are the entries that are carried by their paths, with the numbers of their owners.
// Those that have none are held: what is recorded of them stays.
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

// missing are the directories that entries are in and nobody asks for: those that are not
// there, and those that are there only because of what was projected.
func (p *Projector) missing(before record, wanted map[string]hostfiles.Entry, held map[string]bool) map[string]bool {
	dirs := map[string]bool{} // false: it stays as it is
	for name := range wanted {
		for _, dir := range parents(name) {
			if _, asked := wanted[dir]; asked || held[dir] {
				continue
			}
			if i, known := before.item(dir); known {
				dirs[dir] = i.Was == nil
			} else if _, there, err := Look(p.Root, dir); err == nil && !there {
				dirs[dir] = true
			}
		}
	}
	maps.DeleteFunc(dirs, func(_ string, made bool) bool { return !made })
	return dirs
}

// come is what has to happen that an entry stands at its path. same says that the system
// that projects is the one that did last.
func (p *Projector) come(i item, known bool, want hostfiles.Entry, same bool) (step, error) {
	done := known && !i.Begun && i.last() == want
	if done && same {
		return step{item: i}, nil
	}
	have, there, err := Look(p.Root, want.Path)
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
	case have.Kind == hostfiles.KindOther:
		return s, errors.New("what stands there is no file, directory or link, and could not be put back")
	// What is just as it is asked for was written for the same wish, by Ignition on a first
	// boot. But a directory can have been there before: it stays when nobody asks for it.
	case have.Entry == want && want.Kind != hostfiles.KindDirectory:
	default:
		s.item.Was, s.was = &have.Entry, have.Content
	}
	return s, nil
}
