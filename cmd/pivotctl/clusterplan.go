package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cli"
	objects "machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/containerruntime"
	"machine-pivot/internal/cluster/view"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

func clusterPlanCommand(build cli.Build) *cobra.Command {
	var f clusterFlags
	var render renderFlags
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "plan FILE|DIR…",
		Short: "Show what MachineConfigs would do to each pool and node, before they are applied",
		Long: "Show what MachineConfigs and ContainerRuntimeConfigs would do to each pool and node if they were applied:\n" +
			"the name of the rendered MachineConfig, the differences, and for each node whether it reboots, is\n" +
			"drained, or is changed while it runs, in which order and how many at a time; with all problems at once.\n" +
			"Objects with the name of one of the cluster replace it. Nothing is written. FILE - is standard input.",
		Example: "  pivotctl cluster plan 50-motd.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := render.planned(cmd, &f, args)
			if err != nil {
				return err
			}
			if err := out.Write(cmd.OutOrStdout(), p, func(w io.Writer) { showPlan(w, p) }); err != nil {
				return err
			}
			return failed(p.Problems)
		},
	}
	f.add(cmd, build)
	render.add(cmd)
	out.Add(cmd, api.FleetPlan)
	return cmd
}

// planned returns what the MachineConfigs in files would do. They are merged only if each is valid.
func (f *renderFlags) planned(cmd *cobra.Command, cluster *clusterFlags, paths []string) (p view.Plan, err error) {
	r, err := f.renderer(cmd.Context())
	if err != nil {
		return p, err
	}
	proposed, report, err := readProposed(cmd.Context(), paths, cmd.InOrStdin(), r.Rules)
	if err != nil {
		return p, err
	}
	if report.Failed() {
		return view.Plan{Pools: []view.PoolPlan{}, Problems: report, Missing: []string{}}, nil
	}
	client, err := cluster.client(cmd.Context())
	if err != nil {
		return p, err
	}
	facts, err := view.ObserveNodes(cmd.Context(), client, time.Now())
	if err != nil {
		return p, err
	}
	p, err = view.Planner{Client: client, Renderer: r.Renderer}.Plan(cmd.Context(), facts, proposed)
	if err != nil {
		return p, err
	}
	p.Problems = append(report, p.Problems...)
	return p, r.keep()
}

// readProposed reads the MachineConfigs and ContainerRuntimeConfigs in files.
func readProposed(ctx context.Context, paths []string, stdin io.Reader, rules authored.Rules) (p view.Proposed, report problem.Report, err error) {
	rules.Other = func(n document.Node) bool {
		if !n.Get("kind").Is("ContainerRuntimeConfig") {
			return false
		}
		var checked containerruntime.Objects
		checked.Decode(n)
		var o objects.ContainerRuntimeConfig
		if err := json.Unmarshal(n.JSON(), &o); err != nil {
			n.Fail("it is no ContainerRuntimeConfig: %v", err)
		}
		if slices.ContainsFunc(p.ContainerRuntimeConfigs, func(other objects.ContainerRuntimeConfig) bool { return other.Name == o.Name }) {
			n.Get("metadata").Get("name").Fail("the name %s is that of another ContainerRuntimeConfig, too", problem.Quoted(o.Name))
		}
		p.ContainerRuntimeConfigs = append(p.ContainerRuntimeConfigs, o)
		return true
	}
	p.MachineConfigs, report, err = authored.Read(ctx, paths, stdin, rules)
	return p, report, err
}

func showPlan(w io.Writer, p view.Plan) {
	for i, one := range p.Pools {
		if i > 0 {
			fmt.Fprintln(w)
		}
		showPool(w, one)
	}
	if len(p.Problems) > 0 {
		fmt.Fprintln(w)
		show(w, p.Problems)
	}
	for _, missing := range p.Missing {
		fmt.Fprintln(w, "not read: "+missing)
	}
}

func showPool(w io.Writer, p view.PoolPlan) {
	switch {
	case p.To == "":
		fmt.Fprintf(w, "%s: no rendered MachineConfig\n", p.Name)
	case p.Rounds == 0:
		fmt.Fprintf(w, "%s: %s, and no node is changed\n", p.Name, p.To)
	default:
		fmt.Fprintf(w, "%s: %s → %s, %d at a time, %d rounds\n", p.Name, cmp.Or(p.From, "nothing"), p.To, p.AtOnce, p.Rounds)
	}
	for _, u := range p.Updates {
		fmt.Fprintf(w, "  nodes with %s:\n", u.From)
		var text strings.Builder
		showUpdate(&text, u.Update)
		for line := range strings.Lines(text.String()) {
			fmt.Fprint(w, "    "+line)
		}
	}
	for _, n := range p.Nodes {
		if n.Round > 0 {
			fmt.Fprintf(w, "  round %d: %s: %s\n", n.Round, n.Name, effect(n))
		} else if n.Effect == view.EffectRefused {
			fmt.Fprintf(w, "  never: %s: %s\n", n.Name, effect(n))
		}
	}
	for _, warning := range p.Warnings {
		fmt.Fprintln(w, "  warning: "+warning)
	}
}

// effect says what happens to a node.
func effect(n view.NodePlan) string {
	text := map[string]string{
		view.EffectNone: "only the name of its MachineConfig changes", view.EffectLive: "changed while it runs", view.EffectReboot: "reboots",
		view.EffectRefused: "refuses the change", view.EffectUnknown: "unknown, as what it has cannot be compared",
	}[n.Effect]
	if n.Drain {
		text = "drained, " + text
	}
	return text
}
