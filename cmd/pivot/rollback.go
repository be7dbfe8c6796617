package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"machine-pivot/day2"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/printable"
)

func rollbackCommand() *cobra.Command {
	var flags hostFlags
	var reboot, dryRun bool
	cmd := &cobra.Command{
		Use:     "rollback",
		Short:   "Return to the previous deployment with its kernel arguments and files",
		Long:    "Make the previous deployment the next boot again, with its kernel arguments and files.",
		Example: "  pivot rollback --dry-run\n  pivot rollback -r",
		RunE: flags.onMachine(func(cmd *cobra.Command, m *machine.Machine) error {
			if err := m.Host.CheckBooted(); err != nil {
				return err
			}
			rollback := day2.Rollback{Machine: m, Reboot: reboot}
			if dryRun {
				return printRollback(cmd, &rollback)
			}
			return withLock(m.Host, func() error { return rollback.Run(cmd.Context()) })
		}),
	}
	flags.addRoot(cmd)
	flags.addReboot(cmd)
	flags.progressFlags.add(cmd)
	flags.addResult(cmd)
	cmd.Flags().BoolVarP(&reboot, "reboot", "r", false, "reboot into the previous deployment")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be the next boot; write nothing")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "reboot")
	return cmd
}

// printRollback prints where a rollback leads.
func printRollback(cmd *cobra.Command, rollback *day2.Rollback) error {
	to, stays, err := rollback.Preview(cmd.Context())
	if err != nil {
		return err
	}
	what := "the next boot would be the previous deployment, with its own kernel arguments and files"
	if stays {
		what = "the running system would stay, and be the next boot again"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n  %s\n", what, printable.Line(deploymentText(to)))
	return err
}
