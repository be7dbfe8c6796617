package layer

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
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/sepolicy"
)

// label labels the layers with the merged tree's policy. If base is set, because the policy
// differs from that of the base, label labels the whole tree too.
func (l *labeller) label(t *Tree, base bool) error {
	if l.merged == nil && l.fallback == nil && !l.before {
		return nil
	}
	if err := l.layers(t.layers); err != nil {
		return err
	}
	if base {
		l.fallback = nil // files for which the new policy has no label keep theirs
		if err := l.dir(t.root, "/"); err != nil {
			return err
		}
	}
	return l.apply()
}

// layers labels the layers in parallel; they share no directories.
func (l *labeller) layers(layers []*Layer) error {
	group, ctx := guard.NewGroup(l.ctx)
	group.Limit(runtime.GOMAXPROCS(0))
	uses := make([][]use, len(layers))
	for n, layer := range layers {
		group.Start(func() error {
			own := *l
			own.ctx, own.uses, own.layer = ctx, nil, true
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

// labeller first collects the wanted label of each file, and then changes the objects. It must
// know all uses of an object beforehand: if none keeps the present label, the object is changed
// in place instead of copied.
type labeller struct {
	ctx   context.Context
	store Objects

	// The policies of the merged tree and of the base. The base's policy is used for files
	// for which the merged tree's has no label. Either may be nil.
	merged, fallback *sepolicy.Contexts
	guessed          bool // labels were guessed with a policy that equals merged
	before           bool // files of layers may have labels already: guessed ones, or those of an earlier image
	layer            bool // a layer is being labelled: what neither policy has a label for gets none

	uses    []use
	changed bool // a label has changed, or will change in apply
}

// use is a file in a tree and the label that its object needs there; "" if the object has
// it already. There is one use for each file of an OS, so the struct is small.
type use struct {
	file  *file
	label string
}

// noLabel stands for the label of a use that must have none.
const noLabel = "\x00"

// wanted returns the label for a path, or "" if no policy has one.
func (l *labeller) wanted(at string, mode uint32) (string, error) {
	for _, policy := range []*sepolicy.Contexts{l.merged, l.fallback} {
		if policy == nil {
			continue
		}
		label, known, err := policy.Label(at, sepolicy.Type(mode))
		if pattern, ok := errors.AsType[*sepolicy.PatternError](err); ok {
			return "", fault.New(fault.Refused, "%w", pattern).
				WithHint("write the pattern without what Go's package regexp does not have (look-around, back references), or rebase with rpm-ostree")
		}
		if errors.Is(err, guard.ErrTooMuch) {
			return "", imagefault.TooLarge("/%s: %w", selinuxDir, err)
		}
		if err != nil || known {
			return label, err
		}
	}
	return "", nil
}

// dir labels a directory and collects the files below it. at is its path with a trailing "/".
func (l *labeller) dir(d *dir, at string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	if err := d.load(l.store); err != nil {
		return err
	}
	if err := l.attributes(d, at); err != nil {
		return err
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

// attributes sets the label of the directory itself.
func (l *labeller) attributes(d *dir, at string) error {
	if l.guessed && d.guessed {
		return nil
	}
	info, err := d.attributes(l.store)
	if err != nil {
		return err
	}
	label, err := l.wanted(lookupPath(at), unix.S_IFDIR)
	if err != nil {
		return err
	}
	if _, has := info.Xattrs[hostfiles.LabelAttribute]; label == "" && has && l.layer {
		ostree.SetLabel(info.Xattrs, "")
		l.changed = true
	}
	l.changed = setLabel(info, label) || l.changed
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
	switch label {
	case has.Label:
		label = ""
	case "":
		if l.layer {
			label = noLabel
		}
	}
	l.changed = l.changed || label != ""
	l.uses = append(l.uses, use{f, label})
	return nil
}

// apply changes the labels of the collected objects. It works in parallel, because computing
// the new checksums takes time.
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

// change makes a copy of one object for each new label. uses are all uses of the object,
// sorted by label. If no use keeps the object as it is, it gets the last label itself instead
// of being copied.
func (l *labeller) change(ctx context.Context, uses []use) error {
	object, needed := uses[0].file.object, uses[0].label == ""
	for last, same := range chunks(uses, func(u use) string { return u.label }) {
		if same[0].label == "" {
			continue
		}
		relabel, label := l.store.Relabel, same[0].label
		switch {
		case label == noLabel:
			label = ""
		case last && !needed:
			relabel = l.store.MoveLabel
		}
		made, err := relabel(ctx, object, label)
		if err != nil {
			return err
		}
		for _, u := range same {
			u.file.object = made
		}
	}
	return nil
}

// chunks yields the runs of equal keys in a sorted slice. The flag reports whether a run is
// the last one.
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

// lookupPath returns the path for looking up a directory's label. /proc is looked up as /mnt,
// as in libostree (ostree-sepolicy.c), because policies label only the mounted /proc.
func lookupPath(at string) string {
	if at == "/proc/" {
		return "/mnt/"
	}
	return at
}
