package main

import (
	"github.com/spf13/cobra"

	"machine-pivot/day2"
	"machine-pivot/day2/maintenance"
	"machine-pivot/day2/slot"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/rehearsal"
)

// features are the features of this program: one line each, and nothing else of the program names them.
func features() []machine.Feature {
	return []machine.Feature{
		day2.Downloads(), // it cannot be deleted: window and fleet's lock download first
		rehearsal.Feature(),
		maintenance.Feature(), // before slot, which it limits
		slot.Feature(),
	}
}

// featureCommands returns the commands of all features.
func featureCommands() (all []*cobra.Command) {
	for _, f := range features() {
		for _, c := range f.Commands {
			all = append(all, featureCommand(c))
		}
	}
	return all
}

func featureCommand(c machine.Command) *cobra.Command {
	var flags hostFlags
	on := map[string]*bool{}
	cmd := &cobra.Command{
		Use: c.Name, Short: c.Short, Long: c.Long, Example: c.Example,
		RunE: flags.onMachine(func(cmd *cobra.Command, m *machine.Machine) error {
			given := map[string]bool{}
			for name, value := range on {
				given[name] = *value
			}
			return reported(c.Run(cmd.Context(), m, given))
		}),
	}
	flags.addRoot(cmd)
	if c.Retries {
		flags.addRetry(cmd)
	}
	for _, s := range c.Switches {
		on[s.Name] = cmd.Flags().Bool(s.Name, false, s.Usage)
	}
	return cmd
}
