package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"machine-pivot/firstboot"
	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/pivot"
)

func applyCommand() *cobra.Command {
	var flags hostFlags
	var trial tryFlags
	var out cli.Output
	var reboot, dryRun, unchanged77 bool
	cmd := &cobra.Command{
		Use:   "apply MACHINECONFIG",
		Short: "Bring this machine from the MachineConfig that it has to another one, in one step",
		Long: "Bring this machine from the MachineConfig that it has to another one, in one step: image, kernel arguments,\n" +
			"files, directories and links below /etc and systemd units. What the MachineConfig before asked for and this one\n" +
			"does not is as the image has it; what somebody has changed since stays. The file is in YAML or JSON; - is the\n" +
			"standard input.",
		Example: "  pivot apply --dry-run worker.yaml\n  pivot apply -r worker.yaml\n  pivot apply --try=15m --check 'curl -fsS http://localhost/healthz' worker.yaml",
		Args:    cli.Usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readConfig(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			machine, err := flags.machine(cmd)
			if err != nil {
				return err
			}
			if err := trial.use(&machine); err != nil {
				return err
			}
			apply := firstboot.Apply{Machine: machine, File: args[0], Data: data, Reboot: reboot}
			if dryRun {
				apply.Progress.Emit = func(pivot.Event) {} // a plan tells nobody but its reader
				plan, err := apply.Plan(cmd.Context())
				if err != nil {
					return err
				}
				return out.Write(cmd.OutOrStdout(), plan, func(w io.Writer) { printPlan(w, plan) })
			}
			return byHand(apply.Host, unchanged77, func() (bool, error) { return apply.Run(cmd.Context()) })
		},
	}
	flags.add(cmd)
	flags.addReboot(cmd)
	trial.add(cmd)
	out.Add(cmd, api.Plan)
	cmd.Flags().BoolVarP(&reboot, "reboot", "r", false, "reboot into the new system")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would change, as \"pivot plan\" does; write nothing")
	cmd.Flags().BoolVar(&unchanged77, "unchanged-exit-77", false, "exit with status 77 if nothing had to change")
	return cmd
}

// readConfig reads a MachineConfig from a file, or from the standard input for "-".
func readConfig(file string, stdin io.Reader) ([]byte, error) {
	from := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fault.New(fault.BadInput, "cannot read the MachineConfig: %w", err)
		}
		defer f.Close()
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, document.MaxSize+1))
	if err != nil {
		return nil, fault.New(fault.BadInput, "cannot read the MachineConfig: %w", err)
	}
	return data, nil
}
