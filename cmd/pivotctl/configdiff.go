package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/update"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

func diffCommand() *cobra.Command {
	var out cli.Output
	var policyFile string
	var arguments cli.KargPolicy
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Show what an update to another MachineConfig does to a machine in a cluster",
		Long: "Show what an update from one MachineConfig to another does to a machine in a cluster: the\n" +
			"differences, what the machine-config daemon refuses to change on a running machine, whether it reboots\n" +
			"and why, and what it does instead. Each file contains one MachineConfig, for example from\n" +
			"\"oc get mc rendered-… -o yaml\". A file - is standard input.",
		Example: "  pivotctl config diff rendered-worker-old.yaml rendered-worker-new.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			policy, report, err := readPolicy(cmd.Context(), policyFile, cmd.InOrStdin())
			if err != nil {
				return err
			}
			rules := authored.Rules{}
			if rules.KernelArguments, _, err = arguments.Read(cmd.Context()); err != nil {
				return err
			}
			var sides [2]*authored.MachineConfig
			for i, file := range args {
				mc, problems, err := readOne(cmd.Context(), file, cmd.InOrStdin(), rules)
				if err != nil {
					return err
				}
				sides[i], report = mc, append(report, problems...)
			}
			if err := shown(cmd.ErrOrStderr(), report); err != nil {
				return err
			}
			result, err := update.Between(sides[0], sides[1], policy)
			if err != nil {
				return fault.New(fault.BadInput, "%w", err)
			}
			return out.Write(cmd.OutOrStdout(), result, func(w io.Writer) { showUpdate(w, result) })
		},
	}
	out.Add(cmd, api.Update)
	cmd.Flags().StringVar(&policyFile, "disruption-policy", "", "`FILE` with the cluster's MachineConfiguration; its node disruption policy takes precedence over the defaults")
	arguments.Add(cmd, policyUsage)
	return cmd
}

// readPolicy reads a cluster's node disruption policy from a file, if one is given.
func readPolicy(ctx context.Context, file string, stdin io.Reader) (policy disruption.Cluster, report problem.Report, err error) {
	if file == "" {
		return disruption.DefaultCluster(), nil, nil
	}
	data, ok, err := input.File{What: "the node disruption policy", Path: file, Max: document.MaxSize, Stdin: stdin}.Reported(ctx, &report)
	if ok {
		policy, report = disruption.ReadCluster(file, data)
	}
	return policy, report, err
}

// readOne reads a file with exactly one MachineConfig.
func readOne(ctx context.Context, file string, stdin io.Reader, rules authored.Rules) (*authored.MachineConfig, problem.Report, error) {
	all, report, err := authored.Read(ctx, []string{file}, stdin, rules)
	if err != nil || report.Failed() {
		return nil, report, err
	}
	if len(all) != 1 {
		return nil, report, fault.New(fault.BadInput, "cannot compare %s: it holds %d MachineConfigs, not one", file, len(all)).
			WithHint("merge those of a role first: pivotctl config merge --role ROLE FILE…")
	}
	return all[0], report, nil
}

func showUpdate(w io.Writer, u update.Update) {
	for _, c := range u.Changes {
		fmt.Fprintln(w, c)
		if c.Refused != "" {
			fmt.Fprintln(w, "  refused: "+c.Refused)
		}
		for _, a := range c.Actions {
			because := ""
			if c.Because != "" {
				because = " (" + c.Because + ")"
			}
			fmt.Fprintf(w, "  %s%s\n", update.Describe(a), because)
		}
	}
	for _, note := range u.Notes {
		fmt.Fprintln(w, "note: "+note)
	}
	fmt.Fprintln(w, verdict(u))
}

// verdict summarizes an update on one line.
func verdict(u update.Update) string {
	switch {
	case len(u.Changes) == 0:
		return "nothing changes"
	case u.Refused:
		return "refused: the machine-config daemon makes none of the changes; such machines are installed anew"
	case u.Reboot && len(u.Actions) == 0:
		return "one reboot, after a drain"
	}
	var actions []string
	for _, a := range u.Actions {
		actions = append(actions, update.Describe(a))
	}
	text := strings.Join(actions, "; ")
	switch {
	case u.Reboot:
		return "a reboot that the machine-config daemon does not know of: " + text
	case text == "":
		text = "nothing"
	}
	return "no reboot: " + text
}
