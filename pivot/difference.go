package pivot

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"machine-pivot/internal/disruption"
	"machine-pivot/kargs"
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

// Failures is like Prove without what users may change at any time: that is drift, which makes no
// commit undone, holds no slot, and fails no trial.
func Failures(state State, target Target) []string {
	return Prove(state, target.withoutUsers(state.Etc))
}

func (t Target) withoutUsers(etc Etc) Target {
	t.Entries = slices.DeleteFunc(slices.Clone(t.Entries), etc.usersDecide)
	return t
}

// Compare compares the running system with target and returns the differences; none means that
// the target is reached. Unlike Diff it also checks the running kernel's command line, which a
// boot loader may have changed.
func Compare(state State, target Target) []Difference {
	plan, err := planFor(state, target, nil)
	if err != nil {
		return []Difference{{Class: ClassArguments, Wrong: WrongDiffers, Message: err.Error()}}
	}
	differences := slices.Concat(imageDifferences(state, target, plan), argumentDifferences(state, target, plan))
	for _, change := range plan.Entries {
		differences = append(differences, change.Difference())
	}
	for _, change := range plan.Packages {
		differences = append(differences, change.Difference())
	}
	if !plan.newSystem() {
		for _, name := range slices.Sorted(maps.Keys(state.Etc.Units.Wrong)) {
			differences = append(differences, Difference{ClassUnit, name, "", WrongDiffers, fmt.Sprintf("unit %s: %v", name, state.Etc.Units.Wrong[name])})
		}
	}
	return differences
}

func imageDifferences(state State, target Target, plan Plan) (all []Difference) {
	if plan.Image.Changed {
		all = append(all, Difference{ClassImage, plan.Image.To, "", WrongDiffers, fmt.Sprintf("image: booted %s, wanted %s", plan.Image.From, plan.Image.To)})
	}
	// Programs that import an image make commits of their own: only a commit that does not say of which manifest it
	// was made is compared.
	if want := target.Image.Commit; want != "" && !state.Booted.carries(want) && !target.Image.is(state.Booted.Manifest) {
		all = append(all, Difference{ClassImage, want, "", WrongDiffers, fmt.Sprintf("ostree commit: booted %s, wanted %s", state.Booted.Commit, want)})
	}
	return all
}

func argumentDifferences(state State, target Target, plan Plan) (all []Difference) {
	differ := func(arg string, wrong Wrong, what string) {
		all = append(all, Difference{ClassArguments, arg, "", wrong, fmt.Sprintf("kernel argument %s: %s", arg, what)})
	}
	for _, arg := range plan.Kargs.Appended {
		differ(arg, WrongMissing, "not in effect in the boot entry")
	}
	for _, arg := range plan.Kargs.Deleted {
		if !slices.Contains(plan.Kargs.Appended, arg) {
			differ(arg, WrongExtra, "still in the boot entry")
		}
	}
	if target.Kargs.Literal {
		for _, arg := range plan.Kargs.Respelled {
			differ(arg, WrongDiffers, "in the boot entry in another spelling only, and the machine-config daemon compares to the letter")
		}
	}
	if !plan.Kargs.Changed {
		missing, extra := state.kernelDiffers(target)
		for _, arg := range missing {
			differ(arg, WrongMissing, "in the boot entry, but the running kernel was started without it")
		}
		for _, arg := range extra {
			differ(arg, WrongExtra, "not in the boot entry, but the running kernel was started with it")
		}
	}
	return all
}

// ignitionFirstBoot is in the command line of a kernel if the boot loader has replaced kargs.IgnitionVariable in its
// boot entry.
const ignitionFirstBoot = "ignition.firstboot"

// NeedsKernel reports whether only the start of a kernel gives a target's system its arguments, which are next.
func (s State) NeedsKernel(target Target, next kargs.Line) bool {
	missing, extra := s.kernelDiffers(target)
	return len(missing)+len(extra) > 0 || !next.EqualButOstree(s.Booted.Options)
}

// kernelDiffers returns how the running kernel's arguments differ from a target's: those that it lacks, and those that
// the target removes. The latter cannot be told from what stands for kargs.IgnitionVariable on a first boot.
func (s State) kernelDiffers(target Target) (missing, extra kargs.Line) {
	missing, extra = target.Kargs.Differs(s.Cmdline)
	if len(s.Cmdline.Values(ignitionFirstBoot)) > 0 {
		extra = nil
	}
	return missing, extra
}
