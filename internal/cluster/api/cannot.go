package api

import (
	"slices"
	"strings"
)

// Cannot is the value of the annotation CannotStart: a node says that its machine cannot start the image of a MachineConfig.
// It is evidence of that node about itself.
type Cannot struct {
	Config   string // the MachineConfig
	BootID   string // of the boot in which that was found: another one may have other firmware, or another processor
	Verdicts string // their names, with commas
	Reason   string // with the remedy; at most 2,000 bytes
}

// String returns the value of the annotation.
func (c Cannot) String() string {
	return strings.Join([]string{c.Config, c.BootID, c.Verdicts, BoundedReason(c.Reason)}, " ")
}

// CannotOf returns what a value of the annotation says. Anybody may have written it, so its texts are bounded.
func CannotOf(value string) Cannot {
	if value == "" {
		return Cannot{}
	}
	parts := append(strings.SplitN(value, " ", 4), "", "", "")
	return Cannot{Config: parts[0], BootID: parts[1], Verdicts: BoundedReason(parts[2]), Reason: BoundedReason(parts[3])}
}

// Has reports whether one of the verdicts has a name.
func (c Cannot) Has(verdict string) bool {
	return slices.Contains(strings.Split(c.Verdicts, ","), verdict)
}
