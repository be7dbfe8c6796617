package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"machine-pivot/day2"
	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/printable"
	"machine-pivot/kargs"
)

// exitDifferent is the exit status of "diff --exit-code" if a machine would have to be changed.
const exitDifferent = 3

func diffCommand() *cobra.Command {
	var out cli.Output
	var rulesFile, policyFile string
	var exitCode bool
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Show what apply would change between two MachineConfigs; needs no machine",
		Long: "Show what apply would change on a machine that matches the MachineConfig OLD, to make it match NEW:\n" +
			"the effective differences, whether they need a reboot and why, and which services would be\n" +
			"reloaded or restarted. No machine is needed or examined: image defaults, links of units and the\n" +
			"images that tags name are unknown. A file - is standard input.",
		Example: "  pivot diff worker-old.yaml worker-new.yaml\n  pivot diff --rules disruption.yaml --exit-code worker-old.yaml worker-new.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" && args[1] == "-" {
				return fault.New(fault.Usage, "cannot read both MachineConfigs from the standard input")
			}
			limitMemory(planMemory)
			log := newLog(cmd.ErrOrStderr())
			rules, err := readRules(rulesFile, noteTo(log))
			if err != nil {
				return err
			}
			policy, err := readPolicy(policyFile)
			if err != nil {
				return err
			}
			var sides [2]day2.Config
			for i, file := range args {
				sides[i].File = file
				if sides[i].Data, err = readConfig(file, cmd.InOrStdin()); err != nil {
					return err
				}
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
	cmd.Flags().StringVar(&policyFile, "karg-policy", "", "`FILE` with a machine's own rules for kernel arguments, in the format of "+kargs.PolicyPath)
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with status 3 if anything differs")
	return cmd
}

// readPolicy returns the built-in policy for kernel arguments with the rules of a file, if one is given.
func readPolicy(file string) (kargs.Policy, error) {
	policy := kargs.DefaultPolicy()
	if file == "" {
		return policy, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return policy, fault.New(fault.BadInput, "cannot read the policy for kernel arguments: %w", err)
	}
	if policy, err = policy.Extend(string(text)); err != nil {
		return policy, fault.New(fault.BadInput, "cannot use the policy for kernel arguments %s:\n%w", file, err)
	}
	return policy, nil
}

// readRules reads a machine's rules from a file, if one is given.
func readRules(file string, note func(string)) (disruption.Rules, error) {
	if file == "" {
		return disruption.Defaults(), nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return disruption.Rules{}, fault.New(fault.BadInput, "cannot read the rules: %w", err)
	}
	rules, report := disruption.Read(file, data)
	for _, p := range report {
		note(p.Text())
	}
	return rules, report.Err(file)
}
