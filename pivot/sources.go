package pivot

import (
	"context"
	"fmt"
	"slices"

	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
)

// ownersOf returns a note for each argument that a change removes although it belongs to a program.
func ownersOf(removed kargs.Line, sources []ostree.OptionsSource) (notes []string) {
	for _, arg := range removed {
		for _, s := range sources {
			if slices.Contains(kargs.Split(s.Options), arg) {
				notes = append(notes, fmt.Sprintf("warning: kernel argument %s belongs to %s (%s%s in the boot entry), which may set it again", arg, s.Name, ostree.SourceKey, s.Name))
			}
		}
	}
	return notes
}

// LostOptions returns a note for each program that owns arguments which the deployment's boot entry does not have.
func (d Deployment) LostOptions() (notes []string) {
	for _, s := range d.Sources {
		lost := slices.DeleteFunc(kargs.Split(s.Options), func(arg string) bool { return slices.Contains(d.Options, arg) })
		if len(lost) > 0 {
			notes = append(notes, fmt.Sprintf("kernel arguments of %s (%s%s) are not in the boot entry: %s", s.Name, ostree.SourceKey, s.Name, lost))
		}
	}
	return notes
}

// noteLostSources notes which programs' keys the boot entry that was just committed lacks: a libostree before 2026.1 does not
// carry them over. The arguments are there.
func (c *Converger) noteLostSources(ctx context.Context, had []ostree.OptionsSource) {
	if len(had) == 0 {
		return
	}
	next, err := c.NextBoot(ctx)
	if err != nil {
		return // the reboot, or the next command, says why
	}
	for _, s := range had {
		if !slices.Contains(next.Sources, s) {
			c.Progress.Note(fmt.Sprintf("warning: the new boot entry does not say which kernel arguments are of %s: this libostree does not keep %s%s; they stay when it sets others", s.Name, ostree.SourceKey, s.Name))
		}
	}
}
