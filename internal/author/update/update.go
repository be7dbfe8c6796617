// Package update describes what an update from one MachineConfig to another means for a machine in
// a cluster: the real differences, what the machine-config daemon refuses, whether it reboots, and
// what it does instead.
//
// Sources: the machine-config operator's reconcile.go, update.go and apihelpers.go, and
// its NodeDisruptionPolicy.md, at commit 7ff337a4. The package does no I/O.
package update

import (
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/author/machineconfig"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/machineconfig/spec"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// Update is the differences between two MachineConfigs and their consequences.
type Update struct {
	Changes []Change `json:"changes"`
	// Refused reports whether the machine-config daemon refuses a change on a running machine. It
	// then makes none of the changes.
	Refused bool `json:"refused"`
	Reboot  bool `json:"reboot"`
	// Actions are the actions instead of a reboot, in order.
	Actions []Action `json:"actions"`
	// Notes are differences in form only.
	Notes []string `json:"notes"`
}

// Change is one difference.
type Change struct {
	Kind   string `json:"kind"`             // image, kernel arguments, file, directory, link, unit, …
	Name   string `json:"name,omitempty"`   // a path, or a unit's name
	Action string `json:"action"`           // add, change or remove
	Detail string `json:"detail,omitempty"` // what is different
	// Actions are the actions that the change needs, or a reboot; empty if it is refused.
	Actions []Action `json:"actions"`
	Because string   `json:"because,omitempty"` // the rule that selects the actions
	Refused string   `json:"refused,omitempty"` // why the machine-config daemon refuses it
}

// String describes the change in one line.
func (c Change) String() string {
	text := c.Action + " " + c.Kind
	if c.Name != "" {
		text += " " + c.Name
	}
	if c.Detail != "" {
		text += " (" + c.Detail + ")"
	}
	return text
}

// Values of Change.Action.
const (
	actionAdd    = "add"
	actionChange = "change"
	actionRemove = "remove"
)

// Between returns the update from one MachineConfig to another.
func Between(old, new *machineconfig.MachineConfig, policy Policy) (Update, error) {
	d := differ{policy: policy, update: Update{Changes: []Change{}, Actions: []Action{}, Notes: []string{}}}
	d.system(old.Spec, new.Spec)
	was, is := configOf(old), configOf(new)
	if err := d.storage(was, is); err != nil {
		return Update{}, err
	}
	d.units(was, is)
	d.accounts(was, is)
	d.conclude()
	return d.update, nil
}

func configOf(mc *machineconfig.MachineConfig) ignition.Config {
	if mc.Spec.Config == nil {
		return ignition.Config{}
	}
	return *mc.Spec.Config
}

// differ collects changes.
type differ struct {
	policy Policy
	update Update
}

func (d *differ) add(c Change) {
	if c.Refused != "" || c.Actions == nil {
		c.Actions = []Action{}
	}
	d.update.Changes = append(d.update.Changes, c)
}

// reboots adds a change that always needs a reboot.
func (d *differ) reboots(kind, from, to string) {
	if from == to {
		return
	}
	c := Change{Kind: kind, Action: actionChange, Detail: problem.Quoted(from) + " to " + problem.Quoted(to), Actions: []Action{{Type: Reboot}}}
	switch {
	case from == "":
		c.Action, c.Detail = actionAdd, to
	case to == "":
		c.Action, c.Detail = actionRemove, from
	}
	d.add(c)
}

// system compares everything outside of spec.config.
func (d *differ) system(old, new machineconfig.Spec) {
	d.reboots("image", old.OSImageURL, new.OSImageURL)
	d.arguments(old.KernelArguments, new.KernelArguments)
	d.reboots("kernel type", kernelType(old), kernelType(new))
	d.reboots("extensions", names(old.Extensions), names(new.Extensions))
	if old.ExtensionsImage != new.ExtensionsImage && names(new.Extensions) == "" && kernelType(new) == defaultKernel {
		d.note("the image of extensions differs, of which none is used")
	}
	if old.FIPS != new.FIPS {
		d.add(Change{Kind: "FIPS", Action: actionChange, Detail: fmt.Sprintf("%v to %v", old.FIPS, new.FIPS), Refused: "FIPS is decided when a machine is installed"})
	}
}

const defaultKernel = "default"

func kernelType(s machineconfig.Spec) string {
	if s.KernelType == "" {
		return defaultKernel
	}
	return s.KernelType
}

// names returns a list of names, sorted and without duplicates.
func names(list []string) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(list)))
	return strings.Join(sorted, ", ")
}

// arguments computes the change of kernel arguments on a machine that has the old ones.
func (d *differ) arguments(old, new []string) {
	have, want := spec.CommandLine(old), spec.CommandLine(new)
	result, err := kargs.Change{Delete: have, New: want, Literal: true}.Apply(have)
	if err != nil {
		d.add(Change{Kind: "kernel arguments", Action: actionChange, Refused: err.Error()})
		return
	}
	if !result.Changed {
		if !slices.Equal(have, want) {
			d.note("the kernel arguments are in another order only, for which the machine-config daemon reboots")
		}
		return
	}
	var detail []string
	for _, arg := range result.Deleted {
		detail = append(detail, "-"+arg)
	}
	for _, arg := range result.Appended {
		detail = append(detail, "+"+arg)
	}
	d.add(Change{Kind: "kernel arguments", Action: actionChange, Detail: strings.Join(detail, " "), Actions: []Action{{Type: Reboot}}})
}

func (d *differ) note(format string, args ...any) {
	d.update.Notes = append(d.update.Notes, fmt.Sprintf(format, args...))
}

// conclude derives the result from all changes. A reboot replaces all other actions. Each action is
// done once.
func (d *differ) conclude() {
	u := &d.update
	for _, c := range u.Changes {
		u.Refused = u.Refused || c.Refused != ""
		for _, a := range c.Actions {
			u.Reboot = u.Reboot || a.Type == Reboot
			if !slices.Contains(u.Actions, a) {
				u.Actions = append(u.Actions, a)
			}
		}
	}
	if u.Refused {
		u.Reboot = false
	}
	if u.Refused || u.Reboot {
		u.Actions = []Action{}
	}
	slices.SortStableFunc(u.Actions, func(a, b Action) int { return a.order() - b.order() })
}
