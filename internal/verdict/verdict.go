// Package verdict has what is found against an image before its commit: findings with names, which of them refuse the
// image, and what becomes of those that somebody accepts.
package verdict

import (
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
)

// Name is the name of a verdict. It is stable: administrators write it into settings.
type Name string

// The verdicts that can refuse an image.
const (
	Processor Name = "processor" // the new system needs another processor
	Programs  Name = "programs"  // its programs do not start
	Drivers   Name = "drivers"   // its kernel has no driver for a device that / stands on
	// FileSystems: it does not mount or check a file system without which it does not start.
	FileSystems Name = "file-systems"
	Initramfs   Name = "initramfs" // its initramfs lacks what / needs
	TPM         Name = "tpm"       // no TPM unlocks the disks of / and /var any more
	// SecureBoot: whoever judges kernels with Secure Boot would not start its kernel.
	SecureBoot Name = "secure-boot"
	// WayBack: the boot loader that it needs would not start the running system any more.
	WayBack Name = "way-back"
)

// Names returns the names that can be accepted.
func Names() []Name {
	return []Name{Processor, Programs, Drivers, FileSystems, Initramfs, TPM, SecureBoot, WayBack}
}

// Weight is what a finding means for the image.
type Weight string

// The weights.
const (
	Refused Weight = "refused"    // the image is not used
	Warned  Weight = "warning"    // it is used, and a person should know
	Unknown Weight = "not-judged" // nothing is known, and it is used
)

// Finding is one fact about an image on a machine.
type Finding struct {
	Name   Name   `json:"name,omitempty"` // "" for one of weight Unknown
	Weight Weight `json:"weight"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"` // of one that refuses
}

// RefuseIf returns a warning as what refuses the image, with its remedy, if the machine needs what it is about.
func (f Finding) RefuseIf(vital bool, remedy string) Finding {
	if vital {
		f.Weight, f.Remedy = Refused, remedy
	}
	return f
}

// Accepted is a finding that would have refused an image which is used all the same.
type Accepted struct {
	Name Name   `json:"name"`
	Text string `json:"text"`
}

// Refusal is the error of an image that this machine cannot start.
type Refusal struct {
	Names []Name // of the verdicts that refuse it
	text  string
}

// Error implements error.
func (r *Refusal) Error() string { return r.text }

// Parse returns the names in a list with commas, which kernel arguments can have. The error lists the names that there are.
func Parse(list string) (names []Name, err error) {
	for text := range strings.SplitSeq(list, ",") {
		name := Name(strings.TrimSpace(text))
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("%q is no verdict; there are %s", name, join(Names(), ", "))
		}
		names = append(names, name)
	}
	return names, nil
}

// Decide returns one error with all findings that refuse an image and are not among those that somebody accepts, and notes
// about the others.
//
// The rule: a verdict refuses unless its own name is accepted, and what is accepted is noted and recorded each time that
// it is found.
func Decide(found []Finding, accept []Name) (accepted []Accepted, notes []string, err error) {
	var texts, remedies []string
	var refused []Name
	for _, f := range found {
		switch {
		case f.Weight == Unknown:
			notes = append(notes, "whether this machine can start the new system is not judged in full: "+f.Text)
		case f.Weight == Warned:
			notes = append(notes, "warning: "+f.Text)
		case slices.Contains(accept, f.Name):
			accepted = append(accepted, Accepted{Name: f.Name, Text: f.Text})
			notes = append(notes, fmt.Sprintf("warning: accepted (%s): %s", f.Name, f.Text))
		default:
			texts = append(texts, f.Text)
			if f.Remedy != "" && !slices.Contains(remedies, f.Remedy) {
				remedies = append(remedies, f.Remedy)
			}
			if !slices.Contains(refused, f.Name) {
				refused = append(refused, f.Name)
			}
		}
	}
	if len(refused) == 0 {
		return accepted, notes, nil
	}
	force := fmt.Sprintf("or, if you know better, have it used all the same: --accept %s; on a first boot the kernel argument pivot.accept=%s",
		join(refused, " --accept "), join(refused, ","))
	return accepted, notes, fault.New(fault.Refused, "%w", &Refusal{Names: refused, text: "cannot start the image on this machine: " + strings.Join(texts, "\n")}).
		WithHint("%s", strings.Join(append(remedies, force), "; "))
}

func join(names []Name, separator string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, separator)
}
