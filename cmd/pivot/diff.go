package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"machine-pivot/day2"
	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/printable"
	"machine-pivot/kargs"
)

// exitDifferent is the exit status of "diff --exit-code" if a machine would have to be changed.
const exitDifferent = 3

func diffCommand() *cobra.Command {
	var out cli.Output
	var rulesFile string
	var arguments cli.KargPolicy
	var exitCode bool
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Show what apply would change between two MachineConfigs; needs no machine",
		Long: "Show what apply would change on a machine that matches the MachineConfig OLD, to make it match NEW:\n" +
			"the effective differences, whether they need a reboot and why, and which services would be\n" +
			"reloaded or restarted. No machine is needed or examined: image defaults, links of units and the\n" +
			"images that tags name are unknown. A file - is standard input. Settings that only an installation can\n" +
			"change are left out, with a note that apply refuses them by default.",
		Example: "  pivot diff worker-old.yaml worker-new.yaml\n  pivot diff --rules disruption.yaml --exit-code worker-old.yaml worker-new.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" && args[1] == "-" {
				return fault.New(fault.Usage, "cannot read both MachineConfigs from the standard input")
			}
			limitMemory(planMemory)
			log := newLog(cmd.ErrOrStderr())
			var wrong [4]error // of files that do not depend on each other
			rules, err := readRules(cmd.Context(), rulesFile, noteTo(log))
			policy, _, unusable := arguments.Read(cmd.Context())
			wrong[0], wrong[1] = err, unusable
			var sides [2]day2.Config
			for i, file := range args {
				sides[i].File = file
				sides[i].Data, wrong[2+i] = readConfig(cmd.Context(), file, cmd.InOrStdin())
			}
			if err := fault.Join(wrong[:]...); err != nil {
				return err
			}
			plan, leftOut, report, err := day2.Between(sides[0], sides[1], rules, policy)
			if err == nil {
				err = report.Err("the MachineConfigs")
			}
			if err != nil {
				return err
			}
			for _, p := range report {
				plan.Notes = append(plan.Notes, p.Text())
			}
			err = out.Write(cmd.OutOrStdout(), plan, func(w io.Writer) {
				if plan.Changed {
					printPlan(w, plan)
					return
				}
				fmt.Fprintln(w, "nothing differs that a machine would be changed for")
				for _, note := range plan.Notes {
					fmt.Fprintln(w, "note: "+printable.Text(note))
				}
			})
			if err == nil && exitCode && (plan.Changed || len(leftOut) > 0) {
				return cli.ExitStatus(exitDifferent)
			}
			return err
		},
	}
	out.Add(cmd, api.Plan)
	cmd.Flags().StringVar(&rulesFile, "rules", "", "`FILE` with a machine's own rules, in the format of "+disruption.RulesPath)
	arguments.Add(cmd, "`FILE` with a machine's own rules for kernel arguments, in the format of "+kargs.PolicyPath)
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with status 3 if anything differs")
	return cmd
}

// readRules reads a machine's rules from a file, if one is given.
func readRules(ctx context.Context, file string, note func(string)) (disruption.Rules, error) {
	if file == "" {
		return disruption.Defaults(), nil
	}
	data, err := input.File{What: "the rules", Path: file, Max: document.MaxSize}.Read(ctx)
	if err != nil {
		return disruption.Rules{}, err
	}
	rules, report := disruption.Read(file, data)
	for _, p := range report {
		note(p.Text())
	}
	return rules, report.Err(file)
}
