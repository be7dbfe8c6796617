package pivot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/kargs"
)

// replaced names the deployments that a new one replaces, and what stays of them.
func replaced(state State) (notes []string) {
	const stays = "; its image, %s, stays in the repository until the next change"
	if d := state.HeldBack; d != nil {
		notes = append(notes, fmt.Sprintf("deployment %s is staged and locked, as by bootc upgrade --download-only, and will be dropped"+stays, d.ID(), nameOf(*d)))
	}
	switch d := state.Default; {
	case !state.Pending():
	case d.Staged:
		notes = append(notes, fmt.Sprintf("deployment %s is staged and will be replaced"+stays, d.ID(), nameOf(d)))
	default:
		notes = append(notes, fmt.Sprintf("deployment %s is pending and will be replaced", d.ID()))
	}
	return notes
}

// lostWith says what is lost with a deployment that another one replaces: a change starts from the running system, not from
// what waits for its reboot.
func lostWith(d Deployment, what []string) string {
	return fmt.Sprintf("lost with deployment %s, since a change starts from the running system: %s; to have it too, ask for it in the same change", d.ID(), strings.Join(what, ", "))
}

// lostOf returns what a pending deployment has, and neither the running one nor a new one for a target with the given
// arguments. Its image is not lost if another one is asked for.
func lostOf(state State, target Target, line kargs.Line) (lost []string) {
	pending, booted := state.Default, state.Booted
	if !state.Pending() {
		return nil
	}
	if target.Image.IsZero() && nameOf(pending) != nameOf(booted) {
		lost = append(lost, "image "+nameOf(pending))
	}
	for _, arg := range beyond(pending.Options, booted.Options) {
		if !slices.Contains(line, arg) {
			lost = append(lost, "kernel argument "+arg)
		}
	}
	for _, arg := range beyond(booted.Options, pending.Options) {
		if slices.Contains(line, arg) {
			lost = append(lost, "the deletion of kernel argument "+arg)
		}
	}
	return lost
}

// beyond returns the arguments that a line has and another lacks, without the one that names the deployment.
func beyond(line, other kargs.Line) kargs.Line {
	return slices.DeleteFunc(slices.Clone(line), func(arg string) bool { return strings.HasPrefix(arg, "ostree=") || slices.Contains(other, arg) })
}

// noteLost adds to a plan which requested files and packages are lost with a deployment that waits for its reboot, as
// the running system and the plan lack them. What cannot be read is left out.
func (c *Converger) noteLost(ctx context.Context, plan Plan) Plan {
	state, before := plan.state, c.Progress.Content
	if !plan.Changed || !state.Pending() || state.Default.Staged || before.Phase != PhaseCommitted || before.BootID != state.BootID {
		return plan
	}
	running, err := c.Host.Observe(ctx, before.Target)
	if err != nil {
		return plan
	}
	had, err := planFor(running, before.Target, nil)
	if err != nil {
		return plan
	}
	var lost []string
	for _, entry := range had.Entries {
		if !slices.Contains(plan.target.Paths(), entry.Path) {
			lost = append(lost, entry.Path)
		}
	}
	for _, change := range had.Packages {
		if !plan.target.Packages.has(change.Name) {
			lost = append(lost, fmt.Sprintf("%s package %s", change.Action, change.Name))
		}
	}
	if len(lost) > 0 {
		plan.Notes = append(slices.Clone(plan.Notes), lostWith(state.Default, lost))
	}
	return plan
}
