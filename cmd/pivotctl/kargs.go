package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/pinning"
	"machine-pivot/kargs"
)

func kargsCommand() *cobra.Command {
	return cli.Group("kargs", "Compare and check kernel arguments", kargsDiffCommand(), kargsCheckCommand())
}

func kargsDiffCommand() *cobra.Command {
	var out cli.Output
	var booted, old, wanted, deleted, legacy string
	cmd := &cobra.Command{
		Use:     "diff --booted LINE",
		Short:   "Compute the kernel command line that results from a change",
		Example: "  pivotctl kargs diff --booted 'root=LABEL=root rw quiet' --new '[\"nosmt\"]' --delete '[\"quiet\"]'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("booted") { // an empty line would lose root=
				return fault.New(fault.Usage, "no --booted given").
					WithHint("it is the line to change: the options of a file in /boot/loader/entries")
			}
			var change kargs.Change
			for _, list := range []struct {
				flag, text string
				into       *kargs.Line
			}{{"old", old, &change.Old}, {"new", wanted, &change.New}, {"delete", deleted, &change.Delete}} {
				line, err := argumentList(list.flag, list.text)
				if err != nil {
					return err
				}
				*list.into = line
			}
			if err := addLegacy(cmd.Context(), &change, legacy); err != nil {
				return err
			}
			result, err := change.Apply(kargs.Split(booted))
			if err != nil {
				return fault.New(fault.BadInput, "%w", err)
			}
			return out.Write(cmd.OutOrStdout(), result, func(w io.Writer) { fmt.Fprintln(w, result.Final) })
		},
	}
	out.Add(cmd, api.KargsDiff)
	cmd.Flags().StringVar(&booted, "booted", "", "options of the boot entry, as one `LINE`")
	cmd.Flags().StringVar(&old, "old", "[]", "`JSON` array of the arguments requested before")
	cmd.Flags().StringVar(&wanted, "new", "[]", "`JSON` array of the arguments requested now")
	cmd.Flags().StringVar(&deleted, "delete", "[]", "`JSON` array of arguments to remove")
	cmd.Flags().StringVar(&legacy, "legacy", "", "`FILE` with lines ADD ARG and DELETE ARG, such as /etc/pivot/kernel-args")
	return cmd
}

// addLegacy adds the changes from a legacy file, if one is given.
func addLegacy(ctx context.Context, change *kargs.Change, file string) error {
	if file == "" {
		return nil
	}
	text, err := input.File{What: "kernel arguments", Path: file}.Read(ctx)
	if err != nil {
		return err
	}
	asked, err := kargs.ParseLegacy(string(text))
	if err != nil {
		return fault.New(fault.BadInput, "cannot use %s:\n%w", file, err)
	}
	change.New = append(change.New, asked.New...)
	change.Delete = append(change.Delete, asked.Delete...)
	return nil
}

// argumentList parses a JSON array of entries, each of which may have several arguments.
func argumentList(flag, text string) (kargs.Line, error) {
	var entries []string
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		return nil, fault.New(fault.Usage, "cannot use --%s=%s: it is not a JSON array of strings, as [\"nosmt\"]", flag, text)
	}
	return machineconfig.CommandLine(entries), nil
}

func kargsCheckCommand() *cobra.Command {
	var out cli.Output
	var policy cli.KargPolicy
	cmd := &cobra.Command{
		Use:     "check ARG…",
		Short:   "Check kernel arguments for valid syntax and against the policy",
		Example: "  pivotctl kargs check nosmt mitigations=off",
		RunE: func(cmd *cobra.Command, args []string) error {
			rules, _, err := policy.Read(cmd.Context())
			if err != nil {
				return err
			}
			return printReport(cmd.OutOrStdout(), out, rules.Check(args...))
		},
	}
	out.Add(cmd, api.Check)
	policy.Add(cmd, policyUsage)
	return cmd
}

func cpusetCommand() *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "cpuset SET",
		Short:   "Parse a CPU set and print its canonical form",
		Example: "  pivotctl pinning cpuset 0-1,52-53",
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := pinning.ParseCPUSet(args[0])
			if err != nil {
				return fault.New(fault.BadInput, "%w", err)
			}
			result := struct {
				CPUs      []int  `json:"cpus"`
				Canonical string `json:"canonical"`
				Size      int    `json:"size"`
			}{append([]int{}, set.List()...), set.String(), set.Size()}
			return out.Write(cmd.OutOrStdout(), result, func(w io.Writer) { fmt.Fprintln(w, result.Canonical) })
		},
	}
	out.Add(cmd, api.CPUSet)
	return cmd
}
