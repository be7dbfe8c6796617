package pivot

import (
	"slices"
	"strings"

	"machine-pivot/internal/disruption"
)

// Class says what a Difference is about; the names are stable.
type Class string

// The classes.
const (
	ClassImage     Class = "image"
	ClassArguments Class = "arguments" // one kernel argument
	ClassFile      Class = "file"      // a file, directory or link
	ClassPassword  Class = "password"  // of a user
	ClassUnit      Class = "unit"      // a systemd unit: its file, a drop-in, or a link that enables or masks it
	ClassPackage   Class = "package"
	ClassCPU       Class = "cpu" // CPU partitioning
	// ClassBoundImage is about an application image that the OS image binds.
	ClassBoundImage Class = "bound-image"
)

// Wrong says how something differs; the names are stable.
type Wrong string

// The ways to differ.
const (
	WrongMissing Wrong = "missing"
	WrongExtra   Wrong = "extra" // there, though it should not be
	WrongDiffers Wrong = "differs"
)

// Difference is one difference between the running system and its target. Its JSON is part of the
// output of "pivot verify -o json".
type Difference struct {
	Class Class `json:"class"`
	// Name is the OS or application image, argument, package, user or unit; of a file its path; of the partitioning the
	// CPUs. It may be empty.
	Name    string `json:"name,omitempty"`
	Path    string `json:"path,omitempty"` // of the file, if there is one
	Wrong   Wrong  `json:"wrong"`
	Message string `json:"message"` // for people
}

// String returns the difference for display.
func (d Difference) String() string { return d.Message }

// Texts returns differences for display.
func Texts(differences []Difference) (texts []string) {
	for _, d := range differences {
		texts = append(texts, d.Message)
	}
	return texts
}

// Prove compares the running system with target and returns the differences, for display; none means
// that the target is reached.
func Prove(state State, target Target) []string { return Texts(Compare(state, target)) }

// Difference returns what is wrong with a system that still needs the change.
func (c EntryChange) Difference() Difference {
	d := Difference{Class: ClassFile, Name: c.Path, Path: c.Path, Wrong: WrongDiffers, Message: c.String()}
	switch c.Action {
	case ChangeCreate:
		d.Wrong = WrongMissing
	case ChangeRemove:
		d.Wrong = WrongExtra
	}
	if unit := disruption.UnitOf(c.Path); unit != "" {
		d.Class, d.Name = ClassUnit, unit
	}
	if e := c.entry(); e.OnDisk() != e.Path {
		d.Class, d.Name, d.Path = ClassPassword, strings.TrimPrefix(e.Path, e.OnDisk()+"/"), e.OnDisk()
	}
	return d
}

// Difference returns what is wrong with a system that still needs the change.
func (c PackageChange) Difference() Difference {
	wrong := WrongMissing
	if slices.Contains([]PackageAction{PackageUninstall, PackageRemove}, c.Action) {
		wrong = WrongExtra
	}
	return Difference{Class: ClassPackage, Name: c.Name, Wrong: wrong, Message: c.String()}
}
