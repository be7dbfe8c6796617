package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/cluster/containerruntime"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/problem"
)

func checkCommand() *cobra.Command {
	var rules ruleFlags
	var out cli.Output
	var facts string
	cmd := &cobra.Command{
		Use:   "check FILE|DIR…",
		Short: "Check all objects that configure machines together, and print their CPU sets",
		Long: "Check MachineConfigs, KubeletConfigs and PerformanceProfiles together, as the machines of each role get them:\n" +
			"everything that config validate and pinning check find, and what a profile makes of a machine's kernel and\n" +
			"kubelet. What is not judged is named. FILE - is standard input.",
		Example: "  pivotctl check conf/\n  pivotctl check --host node7.json conf/",
		RunE: func(cmd *cobra.Command, args []string) error {
			r, _, err := rules.rules(cmd.Context())
			if err != nil {
				return err
			}
			if r.CPUs, err = cpusOf(cmd, facts, r.CPUs); err != nil {
				return err
			}
			result, err := checkTogether(cmd.Context(), args, cmd.InOrStdin(), r)
			if err != nil {
				return err
			}
			if err := out.Write(cmd.OutOrStdout(), result, result.print); err != nil {
				return err
			}
			return failed(result.Problems)
		},
	}
	rules.add(cmd)
	out.Add(cmd, api.Check)
	cmd.Flags().StringVar(&facts, "host", "", "`FACTS` that \"pivot facts\" has printed on a machine: its CPUs and cores")
	return cmd
}

// cpusOf returns the CPUs that facts name, or else those of a flag.
func cpusOf(cmd *cobra.Command, facts string, cpus pinning.Machine) (pinning.Machine, error) {
	if facts == "" {
		return cpus, nil
	}
	var document struct{ CPUs pinning.Machine }
	err := cli.ReadFacts(cmd, facts, &document, func() bool { return !document.CPUs.Present.IsEmpty() })
	return document.CPUs, err
}

// together is the result of a check of all objects.
type together struct {
	OK       bool               `json:"ok"`
	Roles    map[string]cpuSets `json:"roles"`
	Problems problem.Report     `json:"problems"`
}

// cpuSets are those of the machines of a role.
type cpuSets struct {
	Profile   *profile          `json:"profile,omitempty"`
	Workloads pinning.Workloads `json:"workloads"`
	Pools     *pinning.Pools    `json:"pools,omitempty"`
	result    pinning.Result
}

// beside are the objects beside MachineConfigs.
type beside struct {
	profiles map[string]profile // by role
	kubelets []kubelet
	pools    map[string]map[string]string // labels by name, which is the role
}

// kubelet is a KubeletConfig.
type kubelet struct {
	name  string
	text  []byte
	pools containerruntime.Selector
}

// take takes the objects that are judged beside MachineConfigs.
func (o *beside) take(n document.Node) bool {
	switch kind := n.Get("kind"); {
	case kind.Is(kindProfile):
		p := decodeProfile(n)
		if other, twice := o.profiles[p.Role]; twice {
			n.Fail("the machines of the role %s have another profile already: %s", p.Role, problem.Quoted(other.Name))
		}
		o.profiles[p.Role] = p
	case kind.Is("KubeletConfig"):
		o.kubelets = append(o.kubelets, kubelet{nameOf(n), n.JSON(), containerruntime.DecodeSelector(n.Get("spec").Get("machineConfigPoolSelector"))})
	case kind.Is("MachineConfigPool"):
		o.pools[nameOf(n)] = n.Get("metadata").Get("labels").Texts()
	default:
		return false
	}
	return true
}

func nameOf(n document.Node) string { return n.Get("metadata").Get("name").Text() }

// checkTogether checks the objects in files and directories.
func checkTogether(ctx context.Context, paths []string, stdin io.Reader, rules authored.Rules) (together, error) {
	result := together{Roles: map[string]cpuSets{}}
	all := beside{profiles: map[string]profile{}, pools: map[string]map[string]string{}}
	rules.Other = all.take
	configs, report, err := authored.Read(ctx, paths, stdin, rules)
	for _, role := range slices.Sorted(maps.Keys(all.profiles)) {
		if role == "" {
			continue // Decode has reported it
		}
		implied, problems := authored.DecodeMade(all.profiles[role].machineConfig(), rules)
		configs = append(configs, implied...)
		report.Add(problems.In("PerformanceProfile " + all.profiles[role].Name)...)
	}
	if err == nil && !report.Failed() {
		var merged problem.Report
		merged, err = authored.CheckRoles(configs, rules)
		report = append(report, merged...)
	}
	roles := authored.Roles(configs)
	for _, role := range roles {
		if err != nil || report.Failed() {
			break
		}
		var sets cpuSets
		sets, err = all.ofRole(role, authored.Select(configs, role), rules.CPUs)
		for _, p := range sets.result.Problems.In("merged for role " + role) {
			known := func(other problem.Problem) bool {
				return other.File == p.File && strings.HasSuffix(other.Message, p.Message)
			}
			if !slices.ContainsFunc(report, known) { // validating has found it, too
				report.Add(p)
			}
		}
		if len(sets.result.Files) > 0 || sets.Profile != nil {
			result.Roles[role] = sets
		}
	}
	result.Problems = append(report, all.unjudged(roles)...)
	result.OK = !result.Problems.Failed()
	return result, err
}

// ofRole returns the CPU sets of the machines of a role, as kernel, CRI-O and kubelet will use them.
func (o *beside) ofRole(role string, configs []*authored.MachineConfig, machine pinning.Machine) (sets cpuSets, err error) {
	merged, err := authored.Merge(configs, authored.Images{})
	if err != nil {
		return sets, err
	}
	in := pinning.Input{Files: map[string][]byte{}, Machine: machine, Line: machineconfig.CommandLine(merged.Spec.Arguments()), Partial: true}
	if err := merged.AddFiles(in.Files, pinning.IsRead); err != nil {
		return sets, err
	}
	var kubelets [][]byte
	if p, has := o.profiles[role]; has {
		sets.Profile = &p
		kubelets = append(kubelets, p.kubelet())
	}
	for _, k := range o.kubelets {
		if o.gets(role, k) {
			kubelets = append(kubelets, k.text)
		}
	}
	for _, kubelet := range kubelets {
		if in.Files[pinning.KubeletConfigPath], err = pinning.WithKubeletConfig(in.Files[pinning.KubeletConfigPath], kubelet); err != nil {
			return sets, fault.New(fault.BadInput, "cannot use a KubeletConfig of the role %s: %w", role, err)
		}
	}
	sets.result = pinning.Inspect(in)
	sets.Workloads, sets.Pools = sets.result.Workloads, sets.result.Pools
	return sets, nil
}

// gets reports whether the machines of a role get a KubeletConfig. The operator labels the pool of each role with its name.
func (o *beside) gets(role string, k kubelet) bool {
	labels := map[string]string{"pools.operator.machineconfiguration.openshift.io/" + role: ""}
	maps.Copy(labels, o.pools[role])
	return k.pools.Matches(labels)
}

// unjudged names the KubeletConfigs that none of the roles gets.
func (o *beside) unjudged(roles []string) (report problem.Report) {
	for _, k := range o.kubelets {
		if !slices.ContainsFunc(roles, func(role string) bool { return o.gets(role, k) }) {
			report.Warn("", "the KubeletConfig %s is not judged: no MachineConfigPool in these files has the labels of its machineConfigPoolSelector",
				problem.Quoted(k.name))
		}
	}
	return report
}

func (t together) print(w io.Writer) {
	show(w, t.Problems)
	for _, role := range slices.Sorted(maps.Keys(t.Roles)) {
		sets := t.Roles[role]
		fmt.Fprintf(w, "machines of the role %s:\n", printable.Text(role))
		if p := sets.Profile; p != nil {
			for _, name := range slices.Sorted(maps.Keys(p.Sets)) {
				if set := p.Sets[name]; !set.IsEmpty() {
					printSet(w, name+" (profile)", set)
				}
			}
		}
		printPinning(w, sets.result)
		if p := sets.Profile; p != nil {
			fmt.Fprintf(w, "the PerformanceProfile %s adds the kernel arguments %s\n", printable.Text(p.Name), printable.Text(strings.Join(p.Arguments, " ")))
			if p.RealTime {
				fmt.Fprintln(w, "it also installs the realtime kernel")
			}
		}
	}
}
