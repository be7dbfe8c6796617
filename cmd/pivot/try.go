package main

import (
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"machine-pivot/day2"
	"machine-pivot/day2/trial"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/settings"
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
	cmd.Flags().Var(cli.Wait{For: &f.limit}, "try", "reboot into the new system on trial: keep it if it passes its checks and is confirmed within `DURATION` (10m if none is given) from the start of its kernel, otherwise boot the old one again")
	try := cmd.Flags().Lookup("try")
	try.NoOptDefVal, try.DefValue = defaultTrial.String(), ""
	f.confirm = string(pivot.ConfirmByHand)
	cli.OneOf{Value: &f.confirm, Allowed: []string{string(pivot.ConfirmByHand), string(pivot.ConfirmAuto)}}.Add(cmd, "confirm", "how a system on trial is confirmed: by hand, with \"pivot confirm\", or automatically when its checks succeed")
	cmd.Flags().StringArrayVar(&f.checks, "check", nil, "shell `COMMAND` that must succeed in the system on trial (repeatable)")
	cli.Suggest(cmd, "try", "10m", "30m", "2h")
	cli.Suggest(cmd, "check")
}

// terms returns the terms of the requested trial; nil if none is requested.
func (f *tryFlags) terms() (*trial.Terms, error) {
	switch {
	case f.limit == 0 && (len(f.checks) > 0 || f.confirm != string(pivot.ConfirmByHand)):
		return nil, fault.New(fault.Usage, "cannot use --check or --confirm without --try")
	case f.limit == 0:
		return nil, nil
	case f.limit < time.Second:
		return nil, fault.New(fault.Usage, "cannot use --try=%v: it is less than a second", f.limit)
	case slices.Contains(f.checks, ""):
		return nil, fault.New(fault.Usage, "cannot use --check: it is empty")
	}
	return &trial.Terms{For: f.limit, Confirm: pivot.Confirm(f.confirm), Checks: f.checks}, nil
}

func confirmCommand() *cobra.Command {
	var flags hostFlags
	cmd := &cobra.Command{
		Use:   "confirm",
		Short: "Confirm the running system on trial, so that it is kept",
		Long: "Confirm the running system, which was booted on trial with --try, so that it is kept. This requires that\n" +
			"the running system matches the target, the units of the setting \"health\" in " + settings.Path + "\n" +
			"are active, and each --check command succeeds. Otherwise the command prints what is missing and exits\n" +
			"with status 69, and the trial continues.",
		Example: "  pivot confirm",
		RunE: flags.onMachine(func(cmd *cobra.Command, m *machine.Machine) error {
			if err := m.Host.CheckBooted(); err != nil {
				return err
			}
			confirm := day2.Confirm{Machine: m}
			return reported(confirm.Run(cmd.Context()))
		}),
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
		Short:   "Conduct or close the trial of a new system; run by " + trial.Unit,
		Long:    "Conduct the trial of the running system, or close a trial that has failed. Run by " + trial.Unit + ".",
		Example: "  pivot trial",
		RunE: flags.onMachine(func(cmd *cobra.Command, m *machine.Machine) error {
			if there, err := m.Host.Has(pivot.StateDir + "/" + pivot.TrialStamp); err == nil && !there && !byUnit() {
				return fault.New(fault.Usage, "no system is on trial here").WithHint("a trial begins with --try: pivot rebase --try IMAGE, pivot apply --try MACHINECONFIG")
			}
			story := day2.Trial{Machine: m}
			return reported(story.Run(cmd.Context()))
		}),
	}
	flags.addRoot(cmd)
	return cmd
}

// byUnit reports whether a unit runs this program. Whether there is something to do may have
// changed since systemd has evaluated the unit's conditions.
func byUnit() bool { return os.Getenv("INVOCATION_ID") != "" }
