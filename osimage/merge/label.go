package merge

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"machine-pivot/fault"
	"machine-pivot/ostree"
	"machine-pivot/selinux"
)

// Relabel gives everything the label that the merged tree's policy has for it: the
// layers, and the base where the policy is not the base's. fallback is the base's
// policy, for what the merged one has no label for; either may be nil.
func (t *Tree) label(ctx context.Context, merged, fallback *selinux.Contexts, base bool) error {
	l := &labeller{ctx: ctx, im: t.im, merged: merged, fallback: fallback, done: map[relabelled]ostree.Checksum{}}
	if merged == nil && fallback == nil {
		return nil
	}
	for _, layer := range t.layers {
		if err := l.dir(layer.root, "/"); err != nil {
			return err
		}
	}
	if !base {
		return nil
	}
	l.fallback = nil // what the base has stays
	return l.dir(t.root, "/")
}

// labeller labels trees.
type labeller struct {
	ctx              context.Context
	im               *ostree.Import
	merged, fallback *selinux.Contexts
	done             map[relabelled]ostree.Checksum
}

// relabelled is a file object and the label that it is to have.
type relabelled struct {
	object ostree.Checksum
	label  string
}

// wanted is the label of a path, or "" where nothing is to be changed.
func (l *labeller) wanted(at string, mode uint32) (label string, err error) {
	for _, policy := range []*selinux.Contexts{l.merged, l.fallback} {
		if policy == nil {
			continue
		}
		label, err = policy.Label(at, mode)
		if pattern, ok := errors.AsType[*selinux.PatternError](err); ok {
			return "", fault.New(fault.Refused, "%w", pattern).
				WithHint("write the pattern without what Go's package regexp does not have (look-around, back references), or rebase with rpm-ostree")
		}
		if err != nil || label != "" {
			return label, err
		}
	}
	return "", nil
}

// dir labels a directory and all below it; at ends with "/".
func (l *labeller) dir(d *dir, at string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	if err := d.load(l.im); err != nil {
		return err
	}
	info, err := d.attributes(l.im)
	if err != nil {
		return err
	}
	label, err := l.wanted(lookupPath(at), unix.S_IFDIR)
	if err != nil {
		return err
	}
	if label != "" {
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
	stat, err := l.im.StatFile(f.object)
	if err != nil {
		return err
	}
	label, err := l.wanted(at, stat.Mode)
	if err != nil || label == "" || label == stat.Label {
		return err
	}
	key := relabelled{f.object, label}
	if _, ok := l.done[key]; !ok {
		if l.done[key], err = l.im.Relabel(l.ctx, f.object, label); err != nil {
			return err
		}
	}
	f.object = l.done[key]
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
