package hostimages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/kargsd"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// withArguments is a target with the kernel arguments that its image, by its commit,
// and the booted one bring, if that is chosen; now are the image's, and notes for people.
func (c Content) withArguments(state pivot.State, target pivot.Target) (_ pivot.Target, now kargs.Line, notes []string, err error) {
	brings, err := c.Arguments(target.Image.Commit)
	if err != nil {
		return target, nil, nil, err
	}
	brought, err := c.Arguments(cmp.Or(state.Booted.Base, state.Booted.Commit))
	if err != nil {
		return target, nil, nil, err
	}
	change := &kargs.ImageChange{Before: brought.Line, Now: brings.Line}
	if target.Kargs.Image == nil {
		notes, err = leftOut(state.Booted.Options, target.Kargs, change)
		if wrong := brings.Err(); wrong != nil {
			notes = append(notes, "warning: "+wrong.Error())
		}
		return target, brings.Line, notes, err
	}
	if err := brings.Err(); err != nil {
		return target, nil, nil, err
	}
	if err := brought.Err(); err != nil { // the image that runs cannot be corrected
		notes = append(notes, fmt.Sprintf("warning: of the running image: %v; what cannot be read of them stays on the command line", err))
	}
	target.Kargs.Image = change
	judged, err := c.judge(state.Booted.Options, target.Kargs)
	return target, brings.Line, slices.Concat(notes, brings.Warnings, judged), err
}

// judge holds what an image adds to the command line against the machine's policy,
// and tells what the image changes.
func (c Content) judge(booted kargs.Line, change kargs.Change) (notes []string, err error) {
	added, removed, err := ofImage(booted, change)
	if err != nil {
		return nil, err
	}
	policy, err := c.Host.KargPolicy()
	if err != nil {
		return nil, err
	}
	if _, err := policy.ParseEntries(added); err != nil {
		return nil, fault.New(fault.Refused, "%w, which the image brings in /%s", err, kargsd.Dir).
			WithHint("leave the image's kernel arguments out with --image-kargs=print, or allow these in %s", kargs.PolicyPath)
	}
	for _, p := range policy.Check(added...) {
		notes = append(notes, fmt.Sprintf("warning: kernel argument %s of the image %s", p.Path, p.Message))
	}
	if what := addsAndRemoves(added, removed); what != "" {
		notes = append(notes, "kernel arguments of the image's own (/"+kargsd.Dir+"): it "+what)
	}
	return notes, nil
}

// ofImage is what a change of the command line adds and removes for the image's sake alone.
func ofImage(booted kargs.Line, change kargs.Change) (added, removed kargs.Line, err error) {
	with, err := change.Apply(booted)
	if err != nil {
		return nil, nil, err
	}
	change.Image = nil
	without, err := change.Apply(booted)
	return beyond(with.Final, without.Final), beyond(without.Final, with.Final), err
}

// beyond is what a line has that another has not.
func beyond(line, other kargs.Line) kargs.Line {
	return slices.DeleteFunc(slices.Clone(line), func(arg string) bool { return slices.Contains(other, arg) })
}

// leftOut names the image's own kernel arguments that the next boot will not have, and
// what it would mean to apply them.
func leftOut(booted kargs.Line, asked kargs.Change, change *kargs.ImageChange) (notes []string, err error) {
	result, err := asked.Apply(booted)
	if err != nil {
		return nil, err
	}
	own, err := kargs.Change{New: change.Now}.Apply(result.Final)
	if err != nil {
		return nil, err
	}
	asked.Image = change
	added, removed, err := ofImage(booted, asked)
	if err != nil {
		return nil, err
	}
	what := addsAndRemoves(added, removed)
	switch {
	case len(own.Appended) > 0:
		return []string{fmt.Sprintf("kernel arguments that the image brings of its own (/%s) are left out: %s; --image-kargs=apply %s",
			kargsd.Dir, own.Appended, cmp.Or(what, "changes nothing, for the running image brings them too: --append-karg adds them"))}, nil
	case what != "":
		return []string{fmt.Sprintf("kernel arguments of the running image's own (/%s) stay; --image-kargs=apply %s", kargsd.Dir, what)}, nil
	}
	return nil, nil
}

// addsAndRemoves says what is added and removed; "" is nothing.
func addsAndRemoves(added, removed kargs.Line) string {
	var what []string
	if len(added) > 0 {
		what = append(what, "adds "+added.String())
	}
	if len(removed) > 0 {
		what = append(what, "removes "+removed.String())
	}
	return strings.Join(what, " and ")
}
