package pool

import (
	"context"
	"maps"
	"slices"

	"machine-pivot/internal/author/machineconfig"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
)

// Renderer says how MachineConfigs become the one that a machine gets.
type Renderer struct {
	Rules machineconfig.Rules
	Base  machineconfig.Images
	// Inline takes the snapshot of what MachineConfigs fetch from elsewhere.
	Inline func(context.Context, []*machineconfig.MachineConfig) ([]*machineconfig.MachineConfig, problem.Report, error)
}

// Roles are the roles that any of the MachineConfigs is for, in the order of their names.
func Roles(all []*machineconfig.MachineConfig) []string {
	roles := map[string]bool{}
	for _, mc := range all {
		if mc.Role() != "" {
			roles[mc.Role()] = true
		}
	}
	return slices.Sorted(maps.Keys(roles))
}

// Merge makes the MachineConfig of a role, with a name by its content. It is nil
// if the report has an error, which may be of all its parts together only.
func (r Renderer) Merge(ctx context.Context, all []*machineconfig.MachineConfig, role string) (*machineconfig.MachineConfig, problem.Report, error) {
	chosen, report, err := r.Inline(ctx, machineconfig.Select(all, role))
	if err != nil || report.Failed() {
		return nil, report, err
	}
	merged, err := machineconfig.Merge(chosen, r.Base)
	if err != nil {
		return nil, report, err
	}
	if err := merged.Render(role); err != nil {
		return nil, report, err
	}
	report = append(report, judge(merged, role, r.Rules)...)
	var remote problem.Report
	for _, at := range ignition.Remote(merged.Spec.Config) {
		remote.Fail("$.spec.config"+at.Path, "it would be fetched when the machine boots: what a machine gets must be whole")
	}
	report.Add(remote.In(mergedFor(role))...)
	if report.Failed() {
		merged = nil
	}
	return merged, report, nil
}

// MergeAll makes the MachineConfig of every role that there are any for. There are
// none if the report has an error: half of a configuration is none.
func (r Renderer) MergeAll(ctx context.Context, all []*machineconfig.MachineConfig) (map[string]*machineconfig.MachineConfig, problem.Report, error) {
	merged := map[string]*machineconfig.MachineConfig{}
	var report problem.Report
	for _, role := range Roles(all) {
		one, problems, err := r.Merge(ctx, all, role)
		if err != nil {
			return nil, problems, err
		}
		report = append(report, problems...)
		merged[role] = one
	}
	if report.Failed() {
		return nil, report, nil
	}
	if len(merged) == 0 {
		return nil, report, fault.New(fault.BadInput, "cannot render: no MachineConfig has the label %s", machineconfig.RoleLabel)
	}
	return merged, report, nil
}

// Validate judges what the MachineConfigs of each role make together. It fetches nothing.
func Validate(all []*machineconfig.MachineConfig, rules machineconfig.Rules) (problem.Report, error) {
	var report problem.Report
	for _, role := range Roles(all) {
		merged, err := machineconfig.Merge(machineconfig.Select(all, role), machineconfig.Images{})
		if err != nil {
			return nil, err
		}
		report = append(report, judge(merged, role, rules)...)
	}
	return report, nil
}

// judge is what only all parts together can get wrong.
func judge(merged *machineconfig.MachineConfig, role string, rules machineconfig.Rules) problem.Report {
	return machineconfig.Check(merged, rules).In(mergedFor(role))
}

// mergedFor names in reports what was read from no file.
func mergedFor(role string) string { return "merged for role " + role }
