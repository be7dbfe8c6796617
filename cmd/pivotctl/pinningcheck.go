package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/input"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/problem"
	"machine-pivot/kargs"
)

// checkFlags are the inputs of pinning check.
type checkFlags struct {
	cli.Output
	root, online, cmdline, role string
}

func pinningCheckCommand() *cobra.Command {
	var flags checkFlags
	cmd := &cobra.Command{
		Use:   "check [FILE…]",
		Short: "Check CPU partitioning against CRI-O, kubelet and the CPUs after a reboot",
		Long: "Check CPU partitioning against CRI-O's rules, kubelet's CPU manager and the CPUs after a reboot.\n" +
			"FILE is a CRI-O drop-in, kubelet's workload pinning file, kubelet's configuration, its cpu_manager_state,\n" +
			"MachineConfigs, or a KubeletConfig. Without FILE, the machine below --root is checked, including all\n" +
			"files that CRI-O reads there.",
		Example: "  pivotctl pinning check\n" +
			"  pivotctl pinning check --online 0-63 --role worker conf/pinning.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := flags.input(cmd, args)
			if err != nil {
				return err
			}
			return flags.report(cmd.OutOrStdout(), pinning.Inspect(input))
		},
	}
	flags.Add(cmd, api.Partition)
	cli.AddRoot(cmd, &flags.root)
	cmd.Flags().StringVar(&flags.online, "online", "", "`SET` of CPUs of the machine, instead of those below --root")
	cmd.Flags().StringVar(&flags.cmdline, "cmdline", "", "kernel command `LINE` of the next boot, instead of the boot entry's")
	addRole(cmd, &flags.role, "use only the MachineConfigs for machines of this `ROLE`")
	return cmd
}

// input returns the configuration to check.
func (f *checkFlags) input(cmd *cobra.Command, args []string) (pinning.Input, error) {
	if err := cli.CheckRoot(f.root); err != nil {
		return pinning.Input{}, err
	}
	h := host.New(f.root)
	onHost := len(args) == 0
	var in pinning.Input
	var err error
	if onHost {
		if in.Files, err = h.PartitionFiles(); err == nil && f.cmdline == "" {
			in.Line, err = h.NextLine()
		}
	} else {
		in, err = f.read(cmd.Context(), args)
	}
	if err != nil {
		return pinning.Input{}, err
	}
	in.Line = append(in.Line, kargs.Split(f.cmdline)...)
	switch {
	case f.online != "":
		set, err := pinning.ParseCPUSet(f.online)
		if err != nil {
			return pinning.Input{}, fault.New(fault.Usage, "cannot use --online: %w", err)
		}
		in.Machine = pinning.CPUsOnly(set)
	case onHost || cmd.Flags().Changed("root"):
		if in.Machine, err = h.CPUs(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return pinning.Input{}, err
		}
	}
	return in, nil
}

// read reads the files of the command line, according to their kinds.
func (f *checkFlags) read(ctx context.Context, paths []string) (pinning.Input, error) {
	g := given{input: pinning.Input{Files: map[string][]byte{}}}
	var wrong []error
	for _, path := range paths {
		wrong = append(wrong, g.add(ctx, path))
	}
	if err := fault.Join(wrong...); err != nil {
		return g.input, err
	}
	if err := f.addConfigs(&g.input, g.configs); err != nil || g.kubelet == nil {
		return g.input, err
	}
	files := g.input.Files
	var err error
	if files[pinning.KubeletConfigPath], err = pinning.WithKubeletConfig(files[pinning.KubeletConfigPath], g.kubelet); err != nil {
		return g.input, fault.New(fault.BadInput, "cannot use the KubeletConfig: %w", err)
	}
	return g.input, nil
}

// given are the files of the command line.
type given struct {
	input   pinning.Input
	configs []*authored.MachineConfig
	kubelet []byte // a KubeletConfig, which a cluster merges over kubelet's configuration
}

// add reads a file.
func (g *given) add(ctx context.Context, path string) error {
	data, err := input.File{What: "what to check,", Path: path, Max: document.MaxSize}.Read(ctx)
	if err != nil {
		return err
	}
	kind := kindOf(data)
	if machineconfig.OfOperator(kind) || strings.HasSuffix(kind, "List") {
		decoded, report := authored.Decode(path, data, authored.Rules{Other: g.take})
		g.configs = append(g.configs, decoded...)
		return report.Err("MachineConfig " + path)
	}
	at := hostPath(path, kind)
	if at == "" {
		return fault.New(fault.BadInput, "cannot check %s: it is of the kind %s", path, kind).
			WithHint("give CRI-O's drop-ins, kubelet's files, MachineConfigs, or a KubeletConfig")
	}
	if _, twice := g.input.Files[at]; twice {
		return fault.New(fault.Usage, "cannot check %s: another file given stands for %s too", path, at)
	}
	g.input.Files[at] = data
	return nil
}

// take takes a KubeletConfig, wherever it stands.
func (g *given) take(n document.Node) bool {
	if !n.Get("kind").Is("KubeletConfig") {
		return false
	}
	if g.kubelet != nil {
		n.Fail("another KubeletConfig is given; give the one that machines of the role get")
	}
	g.kubelet = n.JSON()
	return true
}

// yamlKind matches the kind of a Kubernetes object in YAML.
var yamlKind = regexp.MustCompile(`(?m)^kind:[ \t]*["']?([A-Za-z]+)`)

// kindOf returns the kind of a Kubernetes object, "state" for the state of kubelet's CPU
// manager, "json" for any other JSON object, and "" for anything else.
func kindOf(data []byte) string {
	var object struct {
		Kind   string `json:"kind"`
		Policy string `json:"policyName"`
	}
	if strings.HasPrefix(strings.TrimSpace(string(data)), "{") {
		_ = json.Unmarshal(data, &object) // errors are reported when the file is decoded
		switch {
		case object.Kind != "":
			return object.Kind
		case object.Policy != "":
			return "state"
		}
		return "json"
	}
	if match := yamlKind.FindSubmatch(data); match != nil {
		return string(match[1])
	}
	return ""
}

// hostPath returns the path on a host that a given file represents, or "" for other Kubernetes
// objects.
func hostPath(path, kind string) string {
	switch kind {
	case "KubeletConfiguration":
		return pinning.KubeletConfigPath
	case "state":
		return pinning.ManagerStatePath
	case "json":
		return pinning.KubeletPath
	case "":
		return pinning.DropInDir + "/" + filepath.Base(path)
	}
	return ""
}

// addConfigs adds the files and kernel arguments of MachineConfigs, merged as for the machines
// of a role.
func (f *checkFlags) addConfigs(in *pinning.Input, configs []*authored.MachineConfig) error {
	if len(configs) == 0 {
		return nil
	}
	if f.role != "" {
		if err := checkRole(f.role, "roles of the MachineConfigs", authored.Roles(configs)); err != nil {
			return err
		}
		configs = authored.Select(configs, f.role)
	}
	for _, mc := range configs {
		if f.role == "" && mc.Role() != configs[0].Role() {
			return fault.New(fault.Usage, "cannot check MachineConfigs of the roles %s and %s together", configs[0].Role(), mc.Role()).
				WithHint("say with --role which machines to look at")
		}
	}
	merged, err := authored.Merge(configs, authored.Images{})
	if err != nil {
		return err
	}
	in.Line = append(in.Line, machineconfig.CommandLine(merged.Spec.Arguments())...)
	return merged.AddFiles(in.Files, pinning.IsRead)
}

// report prints the result. It returns an error if the result has errors.
func (f *checkFlags) report(w io.Writer, r pinning.Result) error {
	value := struct {
		OK        bool              `json:"ok"`
		Workloads pinning.Workloads `json:"workloads"`
		Pools     *pinning.Pools    `json:"pools,omitempty"`
		Problems  problem.Report    `json:"problems"`
	}{!r.Problems.Failed(), r.Workloads, r.Pools, r.Problems}
	if err := f.Write(w, value, func(w io.Writer) {
		show(w, r.Problems)
		printPinning(w, r)
	}); err != nil {
		return err
	}
	return failed(r.Problems)
}

func printSet(w io.Writer, name string, set pinning.CPUSet) {
	fmt.Fprintf(w, "%-22s %-20s %d\n", name, cmp.Or(set.String(), "none"), set.Size())
}

func printPinning(w io.Writer, r pinning.Result) {
	line := func(name string, set pinning.CPUSet) { printSet(w, name, set) }
	switch {
	case len(r.Workloads) > 0:
	case slices.Contains(r.Files, pinning.KubeletPath):
		fmt.Fprintln(w, "CPU partitioning is on, but no workload has CPUs of its own")
	default:
		fmt.Fprintln(w, "CPU partitioning is off: no workload is defined")
	}
	for _, name := range r.Workloads.Names() {
		line(name, r.Workloads[name])
	}
	if p := r.Pools; p != nil {
		line("online after reboot", p.Online)
		line("left by workloads", p.Rest)
		line("shared pool", p.Shared)
		if p.Dedicated != nil {
			line("may become dedicated", *p.Dedicated)
		} else {
			fmt.Fprintf(w, "%-22s %s\n", "may become dedicated", "unknown: kubelet's configuration is not given")
		}
	}
}
