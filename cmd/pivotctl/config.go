package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

func configCommand() *cobra.Command {
	return cli.Group("config", "Validate, compare, merge, render and serve MachineConfigs",
		validateCommand(), diffCommand(), mergeCommand(), renderCommand(), ignitionCommand(), serveCommand(), pointerCommand(), fromInstallConfigCommand())
}

// ruleFlags are the rules for MachineConfigs.
type ruleFlags struct {
	policy cli.KargPolicy
	cpus   string
}

func (f *ruleFlags) add(cmd *cobra.Command) {
	f.policy.Add(cmd, policyUsage+"; machines get it as "+kargs.PolicyPath)
	cmd.Flags().StringVar(&f.cpus, "cpus", "", "`SET` of CPUs that the machines have, such as 0-63; workloads must be within it")
}

// policyUsage describes the flag --karg-policy.
const policyUsage = "`FILE` with rules for kernel arguments in addition to the built-in ones: VERDICT ARGUMENT REASON"

// rules returns the rules, and the text of the policy for kernel arguments; nil if none is given.
func (f *ruleFlags) rules(ctx context.Context) (authored.Rules, []byte, error) {
	policy, text, err := f.policy.Read(ctx)
	cpus, wrong := pinning.ParseCPUSet(f.cpus)
	if wrong != nil {
		wrong = fault.New(fault.Usage, "cannot use --cpus: %w", wrong)
	}
	return authored.Rules{KernelArguments: policy, CPUs: pinning.CPUsOnly(cpus)}, text, fault.Join(err, wrong)
}

func validateCommand() *cobra.Command {
	var rules ruleFlags
	var out cli.Output
	var encapsulated bool
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR…",
		Short: "Report all problems of MachineConfigs with file, line and JSON path",
		Long: "Report all problems of MachineConfigs with file, line and JSON path: those of each MachineConfig, and\n" +
			"those of the merged MachineConfig of each role, including warnings of what pivot's first boot would\n" +
			"refuse. Nothing is fetched. FILE - is standard input.",
		Example: "  pivotctl config validate conf/\n" +
			"  pivotctl config validate --encapsulated /etc/ignition-machine-config-encapsulated.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			judge := validateFiles
			if encapsulated {
				judge = validateEncapsulated
			}
			r, _, err := rules.rules(cmd.Context())
			if err != nil {
				return err
			}
			report, err := judge(cmd.Context(), args, cmd.InOrStdin(), r)
			if err != nil {
				return err
			}
			return printReport(cmd.OutOrStdout(), out, report)
		},
	}
	rules.add(cmd)
	out.Add(cmd, api.Check)
	cmd.Flags().BoolVar(&encapsulated, "encapsulated", false, "validate encapsulated MachineConfigs as a machine's first boot does")
	return cmd
}

// validateFiles validates each MachineConfig and, if all are valid, what they result in
// together.
func validateFiles(ctx context.Context, paths []string, stdin io.Reader, rules authored.Rules) (problem.Report, error) {
	all, report, err := authored.Read(ctx, paths, stdin, rules)
	if err != nil || report.Failed() {
		return report, err
	}
	together, err := authored.CheckRoles(all, rules)
	return append(report, together...), err
}

func validateEncapsulated(ctx context.Context, paths []string, stdin io.Reader, rules authored.Rules) (problem.Report, error) {
	var report problem.Report
	for _, path := range paths {
		data, ok, err := input.File{What: "the MachineConfig", Path: path, Max: document.MaxSize, Stdin: stdin}.Reported(ctx, &report)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		_, problems := machineconfig.Parse(data, rules.Host())
		report.Add(problems.In(path)...)
	}
	return report, nil
}

func fromInstallConfigCommand() *cobra.Command {
	var rules ruleFlags
	var format string
	cmd := &cobra.Command{
		Use:     "from-install-config FILE",
		Short:   "Create MachineConfigs from the settings in an install-config",
		Long:    "Create MachineConfigs from the kernel arguments, hyperthreading, FIPS mode and workload partitions in an install-config.",
		Example: "  pivotctl config from-install-config install-config.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, _, err := rules.rules(cmd.Context())
			if err != nil {
				return err
			}
			data, err := input.File{What: "the install-config", Path: args[0], Max: document.MaxSize, Stdin: cmd.InOrStdin()}.Read(cmd.Context())
			if err != nil {
				return err
			}
			all, report := authored.FromInstallConfig(args[0], data, r)
			if err := shown(cmd.ErrOrStderr(), report); err != nil {
				return err
			}
			if len(all) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), args[0]+": it asks for nothing that needs a MachineConfig")
			}
			return writeObjects(cmd.OutOrStdout(), format, all...)
		},
	}
	rules.add(cmd)
	addObjectOutput(cmd, &format, "output format")
	return cmd
}

// addObjectOutput adds the -o flag of a command that writes objects of Kubernetes.
func addObjectOutput(cmd *cobra.Command, format *string, usage string, more ...string) {
	*format = "yaml"
	cli.OneOf{Value: format, Allowed: append([]string{"yaml", "json"}, more...)}.AddP(cmd, "output", "o", usage)
	cli.AddJSON(cmd, format)
}

// writeObjects writes MachineConfigs: as YAML documents, or in JSON as a list if there are several.
func writeObjects(w io.Writer, format string, all ...*authored.MachineConfig) (err error) {
	var text []byte
	if format == "json" {
		text, err = authored.MarshalList(all)
	} else {
		var documents [][]byte
		for _, mc := range all {
			one, err := mc.YAML()
			if err != nil {
				return err
			}
			documents = append(documents, one)
		}
		text = bytes.Join(documents, []byte("---\n"))
	}
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}
