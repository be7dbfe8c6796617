package authored

import (
	"context"
	"maps"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/problem"
)

// Renderer renders MachineConfigs.
type Renderer struct {
	Rules Rules
	Base  Images
	// Inline fetches and inlines remote resources, see package snapshot.
	Inline func(context.Context, []*MachineConfig) ([]*MachineConfig, problem.Report, error)
}

// Roles returns the roles of the MachineConfigs, sorted.
func Roles(all []*MachineConfig) []string {
	roles := map[string]bool{}
	for _, mc := range all {
		if mc.Role() != "" {
			roles[mc.Role()] = true
		}
	}
	return slices.Sorted(maps.Keys(roles))
}

// Merge returns the rendered MachineConfig of a role, with a name derived from its content. It is
// nil if the report has an error, which may concern only the combination of all parts.
func (r Renderer) Merge(ctx context.Context, all []*MachineConfig, role string) (*MachineConfig, problem.Report, error) {
	return r.MergeChosen(ctx, Select(all, role), role)
}

// MergeChosen is Merge for MachineConfigs that something else than their role has chosen, such as the
// selector of a pool.
func (r Renderer) MergeChosen(ctx context.Context, chosen []*MachineConfig, role string) (*MachineConfig, problem.Report, error) {
	chosen, report, err := r.Inline(ctx, chosen)
	if err != nil || report.Failed() {
		return nil, report, err
	}
	merged, err := Merge(chosen, r.Base)
	if err != nil {
		return nil, report, err
	}
	if err := merged.Render(role); err != nil {
		return nil, report, err
	}
	report = append(report, checkMerged(chosen, merged, role, r.Rules)...)
	var remote problem.Report
	for _, at := range ignition.Remote(merged.Spec.Config) {
		remote.Fail("$.spec.config"+at.Path, "it would be fetched when the machine boots: the config of a machine must be complete")
	}
	report.Add(remote.In(mergedFor(role))...)
	if report.Failed() {
		merged = nil
	}
	return merged, report, nil
}

// MergeAll returns the rendered MachineConfig of every role. If the report has an error there are
// none: a partial configuration is useless.
func (r Renderer) MergeAll(ctx context.Context, all []*MachineConfig) (map[string]*MachineConfig, problem.Report, error) {
	merged := map[string]*MachineConfig{}
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
		return nil, report, fault.New(fault.BadInput, "cannot render: no MachineConfig has the label %s", RoleLabel).
			WithHint("set the label in metadata.labels, as %s: worker", RoleLabel)
	}
	return merged, report, nil
}

// CheckRoles checks the merged MachineConfigs of each role. It fetches nothing.
func CheckRoles(all []*MachineConfig, rules Rules) (problem.Report, error) {
	var report problem.Report
	for _, role := range Roles(all) {
		chosen := Select(all, role)
		merged, err := Merge(chosen, Images{})
		if err != nil {
			return nil, err
		}
		report = append(report, checkMerged(chosen, merged, role, rules)...)
	}
	return report, nil
}

// checkMerged checks what only the combination of all parts can get wrong.
func checkMerged(chosen []*MachineConfig, merged *MachineConfig, role string, rules Rules) problem.Report {
	return append(Check(merged, rules), Overruled(chosen)...).In(mergedFor(role))
}

// mergedFor returns the name for a merged MachineConfig in reports, in place of a file.
func mergedFor(role string) string { return "merged for role " + role }
