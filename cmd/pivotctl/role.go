package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"machine-pivot/internal/cli"
)

// addRole adds the flag --role.
func addRole(cmd *cobra.Command, role *string, usage string) {
	cmd.Flags().StringVar(role, "role", "", usage)
	cli.Suggest(cmd, "role", "master", "worker")
}

// checkRole checks that a role is one of those known, if any is; what says what these are. Machines
// of a custom pool get the MachineConfigs of worker, too, so without this a misspelt role would get
// these.
func checkRole(role, what string, known []string) error {
	if len(known) == 0 || slices.Contains(known, role) {
		return nil
	}
	return cli.Unknown("role", role, what, known)
}

// warnRole warns of a role that looks like a misspelt one of those that every cluster has. It may
// be the name of a pool.
func warnRole(w io.Writer, role string) {
	if near := cli.Misspelt(role, []string{"master", "worker", "arbiter"}); near != "" {
		fmt.Fprintf(w, "pivotctl: warning: %s is the role of a custom pool: did you mean %s?\n", role, near)
	}
}
