package day2

import (
	"strings"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// Between returns what Apply would change, judged by rules, on a machine that matches one
// MachineConfig to make it match another. Kernel arguments are judged by policy. It needs no machine.
// leftOut names the differences that only an installation can change: the plan has the rest, and notes that Apply by
// default refuses all. The plan has the form of Apply's, so that users and programs know one format; it says "create"
// where an image may have a default. The machine that this runs on has no part in it: what depends on an architecture is
// not checked.
func Between(from, to Config, rules disruption.Rules, policy kargs.Policy) (plan pivot.Plan, leftOut []string, report problem.Report, err error) {
	host := machineconfig.Host{Policy: &policy}
	had, unused := machineconfig.ReadApplied(from.File, from.Data, host)
	if had == nil {
		return plan, nil, unused, nil
	}
	host.Has, host.Unsupported = had, machineconfig.Warn
	desired, report := machineconfig.Read(to.File, to.Data, host)
	switch {
	case desired == nil:
		return plan, nil, append(unused, report...), nil
	case !desired.HasUnusedOf(had):
		return plan, nil, append(unused.As(problem.Error), report...), nil
	}
	before, after := targetOf(had), targetOf(desired, had)
	plan, err = pivot.Between(before, after, packagesOf(before.Packages, had), rules)
	plan = plan.WithDrain(rules, func(path string) (before, after []byte, err error) {
		return pivot.ContentOf(had.Entries, path), pivot.ContentOf(desired.Entries, path), nil
	})
	if len(desired.LeftOut) > 0 {
		plan.Notes = append(plan.Notes, "pivot apply refuses this MachineConfig, because only an installation can change "+strings.Join(desired.LeftOut, ", ")+
			"; with --unsupported=warn it applies the rest")
	}
	return plan, desired.LeftOut, report, err
}

// targetOf returns the target of a MachineConfig, independent of a machine. before are the
// MachineConfigs that it replaces.
func targetOf(desired *machineconfig.MachineConfig, before ...*machineconfig.MachineConfig) (t pivot.Target) {
	t.Entries, t.Units = hostfiles.Entries(desired.Entries), desired.Units
	t.Kargs.New, t.Kargs.Literal = machineconfig.CommandLine(desired.KernelArguments), desired.FromCluster
	t.Packages, t.Image = machine.Packages(desired, before...), pivot.ImageOf(desired.OSImageURL)
	return t
}

// packagesOf returns the packages of a system that matches a MachineConfig.
func packagesOf(asked pivot.Packages, desired *machineconfig.MachineConfig) (p pivot.SystemPackages) {
	if desired.KernelType == "" || desired.KernelType == machineconfig.KernelDefault {
		p.Installed = machineconfig.KernelPackages(machineconfig.KernelDefault).Needed
	}
	for _, w := range asked.Wishes {
		switch w.Wish {
		case pivot.PackagePresent:
			p.Layered, p.Installed = append(p.Layered, w.Name), append(p.Installed, w.Name)
		case pivot.PackageAbsent:
			p.Removed = append(p.Removed, w.Name)
		}
	}
	return p
}
