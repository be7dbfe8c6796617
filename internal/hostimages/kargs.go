package hostimages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// withArguments returns the target with the kernel arguments that its image and the booted image
// bring, if image arguments are to be applied. It also returns the arguments of the target's
// image (now), and notes for people. target.Image.Commit must be set.
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
	if err := brought.Err(); err != nil { // only a warning: the running image cannot be corrected
		notes = append(notes, fmt.Sprintf("warning: of the running image: %v; what cannot be read of them stays on the command line", err))
	}
	target.Kargs.Image = change
	judged, err := c.judge(state.Booted.Options, target.Kargs)
	return target, brings.Line, slices.Concat(notes, brings.Warnings, judged), err
}

// judge checks the arguments that an image adds to the command line against the machine's
// policy, and returns notes about warnings and about the changes due to the image. They are known
// only from the image's content, so a refusal comes after the pull.
func (c Content) judge(booted kargs.Line, change kargs.Change) (notes []string, err error) {
	added, removed, err := imageDelta(booted, change)
	if err != nil {
		return nil, err
	}
	policy, err := c.Host.KargPolicy()
	if err != nil {
		return nil, err
	}
	if _, err := policy.ParseEntries(added); err != nil {
		return nil, fault.New(fault.Refused, "%w, which the image brings in /%s", err, osimage.KargsDir).
			WithHint("leave the image's kernel arguments out with --image-kargs=print, or allow these in %s", kargs.PolicyPath)
	}
	for _, p := range policy.Check(added...) {
		notes = append(notes, fmt.Sprintf("warning: kernel argument %s of the image %s", p.Path, p.Message))
	}
	if what := addsAndRemoves(added, removed); what != "" {
		notes = append(notes, "kernel arguments that the image contains (/"+osimage.KargsDir+"): it "+what)
	}
	return notes, nil
}

// imageDelta returns the arguments that a change of the command line adds and removes only
// because of the image.
func imageDelta(booted kargs.Line, change kargs.Change) (added, removed kargs.Line, err error) {
	with, err := change.Apply(booted)
	if err != nil {
		return nil, nil, err
	}
	change.Image = nil
	without, err := change.Apply(booted)
	return minus(with.Final, without.Final), minus(without.Final, with.Final), err
}

// minus returns the arguments of a line that another line does not have.
func minus(line, other kargs.Line) kargs.Line {
	return slices.DeleteFunc(slices.Clone(line), func(arg string) bool { return slices.Contains(other, arg) })
}

// leftOut returns a note about image arguments that are not applied, and about the changes that
// applying them would make.
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
	added, removed, err := imageDelta(booted, asked)
	if err != nil {
		return nil, err
	}
	what := addsAndRemoves(added, removed)
	switch {
	case len(own.Appended) > 0:
		return []string{fmt.Sprintf("kernel arguments that the image contains (/%s) are left out: %s; --image-kargs=apply %s",
			osimage.KargsDir, own.Appended, cmp.Or(what, "changes nothing, because the running image has them too: --append-karg adds them"))}, nil
	case what != "":
		return []string{fmt.Sprintf("kernel arguments that the running image contains (/%s) stay; --image-kargs=apply %s", osimage.KargsDir, what)}, nil
	}
	return nil, nil
}

// addsAndRemoves describes added and removed arguments. It returns "" if there are none.
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
