package merge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"machine-pivot/fault"
	"machine-pivot/guard"
	"machine-pivot/ostree"
	"machine-pivot/selinux"
)

// label gives everything the label that the merged tree's policy has for it: the
// layers, and the base where the policy is not the base's. fallback is the base's
// policy, for what the merged one has no label for; either may be nil.
func (t *Tree) label(ctx context.Context, merged, fallback *selinux.Contexts, base bool) error {
	l := &labeller{ctx: ctx, store: t.objects, merged: merged, fallback: fallback, files: map[ostree.Checksum]*object{}}
	if merged == nil && fallback == nil {
		return nil
	}
	for _, layer := range t.layers {
		if err := l.dir(layer.root, "/"); err != nil {
			return err
		}
	}
	if base {
		l.fallback = nil // what the base has stays
		if err := l.dir(t.root, "/"); err != nil {
			return err
		}
	}
	return l.apply()
}

// labeller collects which objects are to have which labels, and then changes them: an
// object that is needed only with another label is moved, not copied.
type labeller struct {
	ctx              context.Context
	store            Objects
	merged, fallback *selinux.Contexts
	files            map[ostree.Checksum]*object
}

// object is a file object and those who use it, by the label that it is to have.
type object struct {
	has   ostree.FileStat
	users map[string][]*file
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
	if label != "" {
		if info.Xattrs == nil {
			info.Xattrs = map[string][]byte{}
		}
		ostree.SetLabel(info.Xattrs, label)
	}
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
	o := l.files[f.object]
	if o == nil {
		has, err := l.store.StatFile(f.object)
		if err != nil {
			return err
		}
		o = &object{has: has, users: map[string][]*file{}}
		l.files[f.object] = o
	}
	label, err := l.wanted(at, o.has.Mode)
	if err != nil {
		return err
	}
	label = cmp.Or(label, o.has.Label)
	o.users[label] = append(o.users[label], f)
	return nil
}

// apply changes the labels, of several objects at once: most of the time goes into
// their checksums.
func (l *labeller) apply() error {
	group, ctx := guard.NewGroup(l.ctx)
	group.Limit(runtime.GOMAXPROCS(0))
	for c, o := range l.files {
		if len(o.users) == 1 && o.users[o.has.Label] != nil {
			continue
		}
		group.Start(func() error { return l.change(ctx, c, o) })
	}
	return group.Wait()
}

// change makes of one object those with other labels. The last one may take its place.
func (l *labeller) change(ctx context.Context, c ostree.Checksum, o *object) error {
	labels := slices.Sorted(maps.Keys(o.users))
	labels = slices.DeleteFunc(labels, func(label string) bool { return label == o.has.Label })
	for i, label := range labels {
		relabel := l.store.Relabel
		if i == len(labels)-1 && o.users[o.has.Label] == nil {
			relabel = l.store.MoveLabel
		}
		made, err := relabel(ctx, c, label)
		if err != nil {
			return err
		}
		for _, f := range o.users[label] {
			f.object = made
		}
	}
	return nil
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
