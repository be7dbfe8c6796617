package main

import (
	"cmp"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"machine-pivot/day2"
	"machine-pivot/day2/maintenance"
	"machine-pivot/day2/slot"
	"machine-pivot/day2/trial"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/identity"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/rehearsal"
)

// features are the features of this program: one line each, and nothing else of the program names them.
func features() []machine.Feature {
	return []machine.Feature{
		day2.Downloads(), // it cannot be deleted: window and fleet's lock download first
		day2.Live(),      // it cannot be deleted: apply changes the running system
		identity.Feature(),
		trial.Feature(), // after identity: it ends the proof
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
			if c.Check != nil {
				if err := c.Check(m, byUnit()); err != nil {
					return err
				}
			}
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

// reported marks an error that the run has already reported.
func reported(err error) error {
	if err != nil {
		return cli.Reported{Err: err}
	}
	return nil
}

// byUnit reports whether a unit runs this program. Whether there is something to do may have
// changed since systemd has evaluated the unit's conditions.
func byUnit() bool { return os.Getenv("INVOCATION_ID") != "" }

// addFeatureFlags adds the flags of all features to a command that changes a machine.
func addFeatureFlags(cmd *cobra.Command) {
	for _, feature := range features() {
		for _, f := range feature.Flags {
			switch {
			case f.Bare != "":
				cmd.Flags().Var(cli.Wait{For: new(time.Duration)}, f.Name, f.Usage)
				flag := cmd.Flags().Lookup(f.Name)
				flag.NoOptDefVal, flag.DefValue = f.Bare, ""
			case len(f.Allowed) > 0:
				cli.OneOf{Value: new(f.Allowed[0]), Allowed: f.Allowed}.Add(cmd, f.Name, f.Usage)
				continue // it suggests what is allowed
			default:
				cmd.Flags().StringArray(f.Name, nil, f.Usage)
			}
			cli.Suggest(cmd, f.Name, f.Suggests...)
		}
	}
}

// useFeatureFlags gives a machine the flags of features. It returns the name of one that asks for a reboot; "" if none
// does.
func useFeatureFlags(cmd *cobra.Command, m *machine.Machine) (reboots string, err error) {
	m.Given = machine.Given{}
	for _, feature := range m.Features {
		for _, f := range feature.Flags {
			flag := cmd.Flags().Lookup(f.Name)
			if !flag.Changed {
				continue
			}
			m.Given[f.Name] = []string{flag.Value.String()}
			if many, is := flag.Value.(pflag.SliceValue); is {
				m.Given[f.Name] = many.GetSlice()
			}
		}
		if feature.Check != nil {
			by, err := feature.Check(m.Given)
			if err != nil {
				return "", err
			}
			reboots = cmp.Or(reboots, by)
		}
	}
	return reboots, nil
}
