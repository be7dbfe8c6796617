package main

import (
	"fmt"
	"io"
	"slices"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/pool"
	"machine-pivot/internal/cli"
)

// checkRole checks that one of the MachineConfigs is for a role. Machines of a custom pool get those
// of worker, too, so without this a misspelt role would get these.
func checkRole(role string, all []*authored.MachineConfig) error {
	roles := pool.Roles(all)
	if len(roles) == 0 || slices.Contains(roles, role) {
		return nil
	}
	return cli.Unknown("role", role, "roles of the MachineConfigs", roles)
}

// warnRole warns of a role that looks like a misspelt one of those that every cluster has. It may
// be the name of a pool.
func warnRole(w io.Writer, role string) {
	if near := cli.Misspelt(role, []string{"master", "worker", "arbiter"}); near != "" {
		fmt.Fprintf(w, "pivotctl: warning: %s is the role of a custom pool: did you mean %s?\n", role, near)
	}
}
