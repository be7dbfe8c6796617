package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/installconfig"
	"machine-pivot/internal/author/pool"
	"machine-pivot/internal/author/provision"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/mcfile"
	"machine-pivot/internal/osimage/imageref"
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
	kargPolicy
	cpus string
}

func (f *ruleFlags) add(cmd *cobra.Command) {
	f.kargPolicy.add(cmd, "; machines get it as "+kargs.PolicyPath)
	cmd.Flags().StringVar(&f.cpus, "cpus", "", "`SET` of CPUs that the machines have, such as 0-63; workloads must be within it")
}

func (f *ruleFlags) rules() (authored.Rules, error) {
	policy, err := f.read()
	rules := authored.Rules{KernelArguments: policy, CheckImage: imageref.Check}
	if err != nil {
		return rules, err
	}
	cpus, err := pinning.ParseCPUSet(f.cpus)
	if err != nil {
		return rules, fault.New(fault.Usage, "cannot use --cpus: %w", err)
	}
	rules.CPUs = cpus
	return rules, nil
}

// kargPolicy is the flag for the administrator's policy for kernel arguments. Each command that judges
// kernel arguments has it.
type kargPolicy struct{ policy string }

// add adds the flag. more is what else its description says.
func (f *kargPolicy) add(cmd *cobra.Command, more string) {
	cmd.Flags().StringVar(&f.policy, "karg-policy", "", "`FILE` with rules for kernel arguments in addition to the built-in ones: VERDICT ARGUMENT REASON"+more)
}

// policyText returns the contents of the file, if one is given.
func (f *kargPolicy) policyText() ([]byte, error) {
	if f.policy == "" {
		return nil, nil
	}
	return readFile(f.policy, "the policy for kernel arguments")
}

// read returns the built-in policy with the rules of the file, if one is given.
func (f *kargPolicy) read() (kargs.Policy, error) {
	text, err := f.policyText()
	if err != nil {
		return kargs.Policy{}, err
	}
	policy, err := kargs.DefaultPolicy().Extend(string(text))
	if err != nil {
		return policy, fault.New(fault.BadInput, "cannot use the policy for kernel arguments %s:\n%w", f.policy, err)
	}
	return policy, nil
}

// readFile reads a file that the command line names; what says what it is.
func readFile(path, what string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.New(fault.BadInput, "cannot read %s: %w", what, err)
	}
	return data, nil
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
			r, err := rules.rules()
			if err != nil {
				return err
			}
			report, err := judge(args, cmd.InOrStdin(), r)
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
func validateFiles(paths []string, stdin io.Reader, rules authored.Rules) (problem.Report, error) {
	all, report, err := pool.Read(paths, stdin, rules)
	if err != nil || report.Failed() {
		return report, err
	}
	together, err := pool.Validate(all, rules)
	if err != nil || together.Failed() {
		return append(report, together...), err
	}
	refused, err := firstBoots(all, rules)
	return append(append(report, together...), refused...), err
}

// firstBoots returns warnings about what pivot's first boot would reject, for each role.
func firstBoots(all []*authored.MachineConfig, rules authored.Rules) (report problem.Report, err error) {
	judge := mcfile.Host{CheckImage: rules.CheckImage, CPUs: rules.CPUs, Policy: &rules.KernelArguments}
	for _, role := range pool.Roles(all) {
		merged, err := authored.Merge(authored.Select(all, role), authored.Images{})
		if err != nil {
			return report, err
		}
		report = append(report, firstBootWarnings(merged, role, judge)...)
	}
	return report, nil
}

// firstBootWarnings returns warnings about what pivot's first boot would reject in the
// MachineConfig of a role. They are not errors, because a cluster's daemon may support what
// pivot does not.
func firstBootWarnings(merged *authored.MachineConfig, role string, judge mcfile.Host) problem.Report {
	report := provision.FirstBoot(merged, judge)
	for i := range report {
		report[i].File, report[i].Severity = "merged for role "+role, problem.Warning
	}
	return report
}

func validateEncapsulated(paths []string, stdin io.Reader, rules authored.Rules) (problem.Report, error) {
	var report problem.Report
	for _, path := range paths {
		data, err := pool.ReadFile(path, stdin)
		if err != nil {
			return nil, err
		}
		_, problems := mcfile.Parse(data, mcfile.Host{CheckImage: rules.CheckImage, CPUs: rules.CPUs, Policy: &rules.KernelArguments})
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
			r, err := rules.rules()
			if err != nil {
				return err
			}
			data, err := pool.ReadFile(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			all, report := installconfig.Decode(args[0], data, r)
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

// addObjectOutput adds the -o flag of a command whose result is objects of Kubernetes.
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
