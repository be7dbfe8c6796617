package main

import (
	"github.com/spf13/cobra"

	"machine-pivot/day2"
	"machine-pivot/internal/machine"
)

func rollbackCommand() *cobra.Command {
	var flags hostFlags
	var reboot bool
	cmd := &cobra.Command{
		Use:     "rollback",
		Short:   "Return to the previous deployment with its kernel arguments and files",
		Long:    "Make the previous deployment the next boot again, with its kernel arguments and files.",
		Example: "  pivot rollback -r",
		RunE: flags.onMachine(func(cmd *cobra.Command, m *machine.Machine) error {
			if err := m.Host.CheckBooted(); err != nil {
				return err
			}
			rollback := day2.Rollback{Machine: m, Reboot: reboot}
			return withLock(m.Host, func() error { return rollback.Run(cmd.Context()) })
		}),
	}
	flags.addRoot(cmd)
	flags.addReboot(cmd)
	flags.progressFlags.add(cmd)
	flags.addResult(cmd)
	cmd.Flags().BoolVarP(&reboot, "reboot", "r", false, "reboot into the previous deployment")
	return cmd
}
