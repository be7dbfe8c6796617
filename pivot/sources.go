package pivot

import (
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
