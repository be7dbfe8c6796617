package machine

import (
	"fmt"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// checkFIPS returns an error if the FIPS mode that a MachineConfig asks for is not that of the running kernel.
func (m *Machine) checkFIPS(d *machineconfig.MachineConfig) error {
	fips, err := m.Host.FIPS()
	if err != nil || fips == d.FIPS {
		return err
	}
	return fault.New(fault.Refused, "cannot pivot this machine: spec.fips is %v, but the kernel runs with FIPS mode %s", d.FIPS, onOff(fips)).
		WithHint("FIPS mode is chosen when a machine is installed and cannot be changed later: install it anew, or correct spec.fips")
}

// fipsMode is the Contributor that judges the next boot's FIPS mode by its complete kernel command line. An argument
// counts whether a MachineConfig, a flag, a file of the old tool or an image has brought it. It adds no entries.
type fipsMode struct{ host *host.Host }

var _ pivot.Contributor = fipsMode{}

// Entries implements pivot.Contributor.
func (fipsMode) Entries() ([]hostfiles.File, error) { return nil, nil }

// Drift implements pivot.Contributor: the arguments are compared as such.
func (fipsMode) Drift(pivot.State, pivot.Target) ([]pivot.Difference, error) { return nil, nil }

// Check implements pivot.Contributor. A plan that switches FIPS mode is an error. Switched on, a machine that was not
// installed for FIPS may not boot (its initramfs halts if it cannot check the kernel), and has keys that FIPS forbids.
// Switched off, it silently loses what it was installed for. The administrator's policy can permit it. So does an image
// that brings fips=1, since it is built for that, unless the spec.fips of an applied MachineConfig says otherwise. What
// the plan does not change is only a warning.
func (f fipsMode) Check(plan pivot.Plan, _ []hostfiles.File) (warnings []string, err error) {
	running, err := f.host.FIPS()
	next := plan.Kargs.Final.FIPS()
	switch {
	case err != nil || next == running || imageMayBring(plan):
		return nil, err
	case next == plan.From().Booted.Options.FIPS():
		return []string{fmt.Sprintf("the kernel runs with FIPS mode %s, and the next boot has it %s: by its kernel arguments, which the running system's boot entry has already", onOff(running), onOff(next))}, nil
	}
	return f.switches(plan, next)
}

// switches returns the warning about a plan that switches FIPS mode, or the error.
func (f fipsMode) switches(plan pivot.Plan, on bool) (warnings []string, err error) {
	policy, err := f.host.KargPolicy()
	if err != nil {
		return nil, err
	}
	what, byMachineConfig := switchesFIPS(on), plan.To().MachineConfig != pivot.MachineConfig{}
	if !byMachineConfig && (policy.Permits(argumentFIPS(on)) || on && broughtByImage(plan)) {
		return []string{"with the kernel arguments that are asked for, " + what}, nil
	}
	hint := map[bool]string{true: "leave out fips=1", false: "keep fips=1"}[on] +
		", also where an image or the earlier MachineConfig has it: FIPS mode is chosen when a machine is installed"
	if !byMachineConfig {
		hint += fmt.Sprintf("; if this machine is prepared for the change, put this line into %s: allow %s", kargs.PolicyPath, argumentFIPS(on))
	}
	return nil, fault.New(fault.Refused, "cannot use the kernel arguments: with them %s", what).WithHint("%s", hint)
}

// broughtByImage reports whether the arguments of a plan's image switch FIPS mode on.
func broughtByImage(plan pivot.Plan) bool {
	image := plan.To().Kargs.Image
	return image != nil && image.Now.FIPS()
}

// NoteFIPS returns what to say about another deployment's kernel arguments that switch FIPS mode; "" if they do not.
func (m *Machine) NoteFIPS(to kargs.Line) (string, error) {
	running, err := m.Host.FIPS()
	if err != nil || to.FIPS() == running {
		return "", err
	}
	return "warning: with the kernel arguments of that deployment, " + switchesFIPS(to.FIPS()), nil
}

// imageMayBring reports whether a plan's image may still bring kernel arguments that are not known yet. The plan is
// checked again when they are.
func imageMayBring(plan pivot.Plan) bool {
	target := plan.To()
	unresolved := target.Image.IsZero() && !plan.Request().Image.IsZero()
	return unresolved || plan.Image.Changed && target.Kargs.Image != nil && target.Image.Commit == ""
}

func switchesFIPS(on bool) string {
	return fmt.Sprintf("the next boot has FIPS mode %s, and this machine has it %s", onOff(on), onOff(!on))
}

// argumentFIPS returns the argument that stands for a FIPS mode.
func argumentFIPS(on bool) string { return map[bool]string{true: "fips=1", false: "fips=0"}[on] }

func onOff(on bool) string { return map[bool]string{true: "on", false: "off"}[on] }
