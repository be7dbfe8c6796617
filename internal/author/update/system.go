package update

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/problem"
)

// system compares everything outside of spec.config.
func (d *differ) system(old, new machineconfig.Spec) {
	d.reboots("image", old.OSImageURL.String(), new.OSImageURL.String())
	d.arguments(old.KernelArguments, new.KernelArguments)
	d.reboots("kernel type", cmp.Or(old.KernelType, defaultKernel), cmp.Or(new.KernelType, defaultKernel))
	d.extensions(old.Extensions, new.Extensions)
	if old.ExtensionsImage != new.ExtensionsImage {
		d.note("the image of extensions differs, which the machine-config daemon does not compare: it is used with the next change of image, kernel type or extensions")
	}
	if old.FIPS != new.FIPS {
		d.add(Change{Kind: "FIPS", Action: actionChange, Detail: fmt.Sprintf("%v to %v", old.FIPS, new.FIPS), Refused: "FIPS is decided when a machine is installed"})
	}
}

// reboots adds a change that always needs a reboot.
func (d *differ) reboots(kind, from, to string) {
	if from == to {
		return
	}
	c := Change{Kind: kind, Action: actionChange, Detail: problem.Quoted(from) + " to " + problem.Quoted(to), Actions: only(disruption.Reboot)}
	switch {
	case from == "":
		c.Action, c.Detail = actionAdd, to
	case to == "":
		c.Action, c.Detail = actionRemove, from
	}
	d.add(c)
}

const defaultKernel = "default"

// extensions compares lists, in which order and duplicates count.
func (d *differ) extensions(old, new []string) {
	if sameList(old, new) {
		return
	}
	d.reboots("extensions", strings.Join(old, ", "), strings.Join(new, ", "))
}

// arguments compares kernel arguments, of which order and distribution over entries count.
func (d *differ) arguments(old, new []string) {
	if sameList(old, new) {
		return
	}
	have, want := machineconfig.CommandLine(old), machineconfig.CommandLine(new)
	var detail []string
	for _, arg := range without(have, want) {
		detail = append(detail, "-"+arg)
	}
	for _, arg := range without(want, have) {
		detail = append(detail, "+"+arg)
	}
	if detail == nil {
		detail = []string{"in order or form only"}
	}
	d.add(Change{Kind: "kernel arguments", Action: actionChange, Detail: strings.Join(detail, " "), Actions: only(disruption.Reboot)})
}

// without returns a list without the elements of another one, each as often as it is there.
func without(list, other []string) (rest []string) {
	other = slices.Clone(other)
	for _, item := range list {
		if i := slices.Index(other, item); i >= 0 {
			other = slices.Delete(other, i, i+1)
			continue
		}
		rest = append(rest, item)
	}
	return rest
}
