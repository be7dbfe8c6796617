package main

import (
	"github.com/spf13/cobra"

	"machine-pivot/day2"
	"machine-pivot/internal/machine"
)

func handBackCommand() *cobra.Command {
	var flags hostFlags
	cmd := &cobra.Command{
		Use:   "hand-back",
		Short: "Give this machine back to the machine-config-daemon",
		Long: "Give this machine back to the machine-config-daemon. The system does not change. Afterwards the\n" +
			"daemon's files name its MachineConfig, and pivot's files do not. The machine must be exactly what that\n" +
			"MachineConfig requests, and nothing may wait for a reboot.",
		Example: "  pivot hand-back",
		RunE: flags.onMachine(func(cmd *cobra.Command, m *machine.Machine) error {
			back, change := day2.HandBack{Machine: m}, changeFlags{}
			return change.withLock(m.Host, func() (bool, error) { return back.Run(cmd.Context()) })
		}),
	}
	flags.addRoot(cmd)
	flags.progressFlags.add(cmd)
	flags.addResult(cmd)
	return cmd
}
