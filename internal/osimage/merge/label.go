package merge

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/selinux"
)

// label gives everything the label that the merged tree's policy has for it: the
// layers, and the base where the policy is not the base's.
func (l *labeller) label(t *Tree, base bool) error {
	if l.merged == nil && l.fallback == nil {
		return nil
	}
	if err := l.layers(t.layers); err != nil {
		return err
	}
	if base {
		l.fallback = nil // what the base has stays
		if err := l.dir(t.root, "/"); err != nil {
			return err
		}
	}
	return l.apply()
}

// layers labels layers, several at once: they have nothing in common.
func (l *labeller) layers(layers []*Layer) error {
	group, ctx := guard.NewGroup(l.ctx)
	group.Limit(runtime.GOMAXPROCS(0))
	uses := make([][]use, len(layers))
	for n, layer := range layers {
		group.Start(func() error {
			own := *l
			own.ctx, own.uses = ctx, nil
			err := own.dir(layer.root, "/")
			uses[n] = own.uses
			if own.changed {
				layer.written = nil
			}
			return err
		})
	}
	err := group.Wait()
	l.uses = slices.Concat(uses...)
	return err
}

// labeller collects which objects are to have which labels, and then changes them: an
// object that is needed only with another label is moved, not copied.
type labeller struct {
	ctx   context.Context
	store Objects

	// The merged tree's policy, and the base's, for what the merged one has no label for;
	// either may be nil.
	merged, fallback *selinux.Contexts
	guessed          bool // by the merged tree's policy

	uses    []use
	changed bool // something has another label now, or will get it
}

// use is a name of a tree, and the label that its object is to have there; "" if that
// is the one it has. There is one for each name of an OS, so it is small.
type use struct {
	file  *file
	label string
}

// wanted is the label of a path, or "" where nothing is to be changed.
func (l *labeller) wanted(at string, mode uint32) (string, error) {
	for _, policy := range []*selinux.Contexts{l.merged, l.fallback} {
		if policy == nil {
			continue
		}
		label, known, err := policy.Label(at, selinux.Type(mode))
		if pattern, ok := errors.AsType[*selinux.PatternError](err); ok {
			return "", fault.New(fault.Refused, "%w", pattern).
				WithHint("write the pattern without what Go's package regexp does not have (look-around, back references), or rebase with rpm-ostree")
		}
		if err != nil || known {
			return label, err
		}
	}
	return "", nil
}

// dir labels a directory and collects the files below it; at ends with "/".
func (l *labeller) dir(d *dir, at string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	if err := d.load(l.store); err != nil {
		return err
	}
	info, err := d.attributes(l.store)
	if err != nil {
		return err
	}
	label, err := l.wanted(lookupPath(at), unix.S_IFDIR)
	if err != nil {
		return err
	}
	l.changed = setLabel(info, label) || l.changed
	for name, f := range d.files {
		if err := l.file(f, at+name); err != nil {
			return fmt.Errorf("%s%s: %w", at, name, err)
		}
	}
	for name, below := range d.dirs {
		if err := l.dir(below, at+name+"/"); err != nil {
			return err
		}
	}
	return nil
}

func (l *labeller) file(f *file, at string) error {
	if l.guessed && f.guessed {
		l.uses = append(l.uses, use{file: f})
		return nil
	}
	has, err := l.store.StatFile(f.object)
	if err != nil {
		return err
	}
	label, err := l.wanted(at, has.Mode)
	if err != nil {
		return err
	}
	if label == has.Label {
		label = ""
	}
	l.changed = l.changed || label != ""
	l.uses = append(l.uses, use{f, label})
	return nil
}

// apply changes the labels, of several objects at once: most of the time goes into
// their checksums.
func (l *labeller) apply() error {
	slices.SortFunc(l.uses, func(a, b use) int {
		return cmp.Or(bytes.Compare(a.file.object[:], b.file.object[:]), cmp.Compare(a.label, b.label))
	})
	group, ctx := guard.NewGroup(l.ctx)
	group.Limit(runtime.GOMAXPROCS(0))
	for _, uses := range chunks(l.uses, func(u use) ostree.Checksum { return u.file.object }) {
		if uses[len(uses)-1].label != "" {
			group.Start(func() error { return l.change(ctx, uses) })
		}
	}
	return group.Wait()
}

// change makes of one object, whose uses these are by their labels, those with other
// labels. If nobody needs it as it is, the last one takes its place.
func (l *labeller) change(ctx context.Context, uses []use) error {
	object, needed := uses[0].file.object, uses[0].label == ""
	for last, same := range chunks(uses, func(u use) string { return u.label }) {
		if same[0].label == "" {
			continue
		}
		relabel := l.store.Relabel
		if last && !needed {
			relabel = l.store.MoveLabel
		}
		made, err := relabel(ctx, object, same[0].label)
		if err != nil {
			return err
		}
		for _, u := range same {
			u.file.object = made
		}
	}
	return nil
}

// chunks are the parts of a sorted slice that have the same key, each with whether it
// is the last one.
func chunks[T any, K comparable](all []T, key func(T) K) iter.Seq2[bool, []T] {
	return func(yield func(bool, []T) bool) {
		for len(all) > 0 {
			first := key(all[0])
			end := slices.IndexFunc(all, func(t T) bool { return key(t) != first })
			if end < 0 {
				end = len(all)
			}
			part := all[:end]
			all = all[end:]
			if !yield(len(all) == 0, part) {
				return
			}
		}
	}
}

// lookupPath is the path that a directory's label is looked up by. The mount point of
// /proc gets the label of /mnt's, since policies know /proc only when it is mounted
// (ostree-sepolicy.c).
func lookupPath(at string) string {
	if at == "/proc/" {
		return "/mnt/"
	}
	return at
}
