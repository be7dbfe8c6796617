package firstboot

import (
	"strings"

	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// Accounts implements pivot.Content: those that the new /etc will have, by the image in
// the repository and what was changed in /etc.
func (m imageKargs) Accounts(plan pivot.Plan) (hostfiles.Accounts, error) {
	state, commit := plan.From(), plan.To().Image.Commit
	if !plan.Image.Changed {
		return state.Etc.Accounts, nil
	}
	c, err := ostree.ParseChecksum(commit)
	if err != nil {
		return hostfiles.Accounts{}, err
	}
	repo, err := m.Host.ReadRepo()
	if err != nil {
		return hostfiles.Accounts{}, err
	}
	booted, err := m.Host.Sysroot().Booted()
	if err != nil {
		return hostfiles.Accounts{}, err
	}
	return host.NextAccounts(booted, func(name string) ([]byte, error) { return repo.ReadFile(c, name) })
}

// Units implements pivot.Content.
func (m imageKargs) Units(plan pivot.Plan, commit string) (enable.Resolved, error) {
	c, err := ostree.ParseChecksum(commit)
	if err != nil {
		return enable.Resolved{}, err
	}
	repo, err := m.Host.ReadRepo()
	if err != nil {
		return enable.Resolved{}, err
	}
	booted, err := m.Host.Sysroot().Booted()
	if err != nil {
		return enable.Resolved{}, err
	}
	return host.NextUnits(booted, repo, c, plan.To())
}

// foreseeUnits notes which wishes for units cannot come true in the system of a commit,
// unless packages that change may bring them.
func (m imageKargs) foreseeUnits(plan pivot.Plan, commit string) (pivot.Plan, error) {
	if len(plan.Packages) > 0 {
		return plan, nil
	}
	units, err := m.Units(plan, commit)
	if wrong := units.Err(); wrong != nil {
		plan.Notes = append(plan.Notes, "warning: in the new system: "+strings.ReplaceAll(wrong.Error(), "\n", "; "))
	}
	return plan, err
}
