// Package update says what it means for a machine of a cluster to go from one
// MachineConfig to another: what really differs, what the machine-config daemon refuses,
// whether it reboots, and what it does instead.
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

// Update is what differs between two MachineConfigs and what follows.
type Update struct {
	Changes []Change `json:"changes"`
	// Refused reports whether a change is one that the machine-config daemon makes on no
	// machine that runs. Then it makes none of them.
	Refused bool `json:"refused"`
	Reboot  bool `json:"reboot"`
	// Actions are what happens instead of a reboot, in order.
	Actions []Action `json:"actions"`
	// Notes are differences that are none: the same in another form.
	Notes []string `json:"notes"`
}

// Change is one thing that differs.
type Change struct {
	Kind   string `json:"kind"`             // image, kernel arguments, file, directory, link, unit, …
	Name   string `json:"name,omitempty"`   // a path, or a unit's name
	Action string `json:"action"`           // add, change or remove
	Detail string `json:"detail,omitempty"` // what is different
	// Actions are what the change needs; a reboot, or none if it is refused.
	Actions []Action `json:"actions"`
	Because string   `json:"because,omitempty"` // the rule that asks for them
	Refused string   `json:"refused,omitempty"` // why the machine-config daemon does not make it
}

// String is the change in one line.
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

// What happens to a thing.
const (
	actionAdd    = "add"
	actionChange = "change"
	actionRemove = "remove"
)

// Between is the update from one MachineConfig to another.
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

// system compares what is not in spec.config.
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

// names is a list of names as a set.
func names(list []string) string {
	sorted := slices.Compact(slices.Sorted(slices.Values(list)))
	return strings.Join(sorted, ", ")
}

// arguments compares kernel arguments as a machine with the old ones would.
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

// conclude says what follows from all changes: a reboot makes all other actions
// needless. Each action is done once.
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
	slices.SortStableFunc(u.Actions, func(a, b Action) int { return a.turn() - b.turn() })
}
