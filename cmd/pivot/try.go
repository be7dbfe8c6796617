package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"machine-pivot/firstboot"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/trial"
	"machine-pivot/pivot"
)

// tryFlags are the flags of the commands that can try a new system.
type tryFlags struct {
	limit   time.Duration
	confirm string
	checks  []string
}

// defaultTrial is the default time limit of a trial.
const defaultTrial = 10 * time.Minute

func (f *tryFlags) add(cmd *cobra.Command) {
	cmd.Flags().Var(cli.Wait{For: &f.limit}, "try", "reboot into the new system on trial: it is kept if it proves itself and is confirmed within `DURATION` (10m if none is given) from the start of its kernel, else the old one is booted again")
	try := cmd.Flags().Lookup("try")
	try.NoOptDefVal, try.DefValue = defaultTrial.String(), ""
	f.confirm = string(pivot.ConfirmByHand)
	cli.OneOf{Value: &f.confirm, Allowed: []string{string(pivot.ConfirmByHand), string(pivot.ConfirmAuto)}}.Add(cmd, "confirm", "who confirms a system on trial: somebody with \"pivot confirm\", or its proof alone")
	cmd.Flags().StringArrayVar(&f.checks, "check", nil, "`COMMAND` of the shell that must succeed in a system on trial (repeatable)")
	cli.Suggest(cmd, "try", "10m", "30m", "2h")
	cli.Suggest(cmd, "check")
}

// use configures the machine for a trial, if one is requested.
func (f *tryFlags) use(m *firstboot.Machine) error {
	switch {
	case f.limit == 0 && (len(f.checks) > 0 || f.confirm != string(pivot.ConfirmByHand)):
		return fault.New(fault.Usage, "cannot use --check or --confirm without --try")
	case f.limit == 0:
		return nil
	case f.limit < time.Second:
		return fault.New(fault.Usage, "cannot use --try=%v: it is less than a second", f.limit)
	case slices.Contains(f.checks, ""):
		return fault.New(fault.Usage, "cannot use --check: it is empty")
	}
	m.Try = &trial.Terms{For: f.limit, Confirm: pivot.Confirm(f.confirm), Checks: f.checks}
	return nil
}

func confirmCommand() *cobra.Command {
	var flags hostFlags
	cmd := &cobra.Command{
		Use:   "confirm",
		Short: "Keep the system that runs on trial",
		Long: "Keep the system that runs on trial, to which --try has brought the machine, if it has proven itself: what runs is\n" +
			"what was asked for, the units of the setting \"health\" in " + host.SettingsPath + " are active, and each\n" +
			"--check command succeeds. What is lacking is named, with status 69, and the trial goes on.",
		Example: "  pivot confirm",
		Args:    cli.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			machine, err := flags.machine(cmd)
			if err != nil {
				return err
			}
			confirm := firstboot.Confirm{Machine: machine}
			return reported(confirm.Run(cmd.Context()))
		},
	}
	flags.addRoot(cmd)
	return cmd
}

// reported marks an error that the run has already reported.
func reported(err error) error {
	if err != nil {
		return cli.Reported{Err: err}
	}
	return nil
}

func trialCommand() *cobra.Command {
	var flags hostFlags
	cmd := &cobra.Command{
		Use:     "trial",
		Short:   "Conduct the trial of the system that runs, or close one that has failed; for " + trial.Unit,
		Example: "  pivot trial",
		Args:    cli.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			machine, err := flags.machine(cmd)
			if err != nil {
				return err
			}
			story := firstboot.Trial{Machine: machine}
			return reported(story.Run(cmd.Context()))
		},
	}
	flags.addRoot(cmd)
	return cmd
}
