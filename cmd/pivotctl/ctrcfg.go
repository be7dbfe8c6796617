package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/cluster/containerruntime"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/input"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/problem"
)

func ctrcfgCommand() *cobra.Command {
	return cli.Group("ctrcfg", "Render ContainerRuntimeConfigs to MachineConfigs", ctrcfgRenderCommand())
}

// ctrcfgFlags are the inputs of ctrcfg render.
type ctrcfgFlags struct{ role, rendered, format string }

func ctrcfgRenderCommand() *cobra.Command {
	var flags ctrcfgFlags
	cmd := &cobra.Command{
		Use:   "render FILE…",
		Short: "Render ContainerRuntimeConfigs to MachineConfigs",
		Long: "Render ContainerRuntimeConfigs to MachineConfigs. FILE contains ContainerRuntimeConfigs, and optionally\n" +
			"MachineConfigPools; their labels then determine which of them is for which pool. Without pools, all are\n" +
			"for --role.",
		Example: "  pivotctl ctrcfg render --role worker ctrcfg.yaml\n" +
			"  pivotctl ctrcfg render pools.yaml ctrcfg.yaml -o ignition",
		RunE: func(cmd *cobra.Command, args []string) error { return flags.run(cmd, args) },
	}
	addRole(cmd, &flags.role, "`ROLE` of the machines: worker, master or the name of a pool")
	cmd.Flags().StringVar(&flags.rendered, "rendered", "", "`FILE` with the pool's rendered MachineConfig, which has the files to modify")
	addObjectOutput(cmd, &flags.format, "output format; ignition: only the Ignition configs", "ignition")
	return cmd
}

func (f *ctrcfgFlags) run(cmd *cobra.Command, args []string) error {
	objects, err := readRuntimeConfigs(cmd.Context(), args, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if f.role == "" && len(objects.Pools) == 0 {
		return fault.New(fault.Usage, "no --role given").WithHint("give the role of the machines, or the MachineConfigPools")
	}
	if err := f.checkRole(objects.Pools, cmd.ErrOrStderr()); err != nil {
		return err
	}
	base, err := f.base(cmd.Context())
	if err != nil {
		return err
	}
	assigned, err := objects.Assign(f.role)
	if err != nil {
		return fault.New(fault.BadInput, "%w", err)
	}
	if len(assigned) > 1 && f.rendered != "" {
		return fault.New(fault.Usage, "cannot use --rendered for several pools").WithHint("say with --role which pool it is of")
	}
	var manifests []authored.Manifest
	for _, a := range assigned {
		r, err := a.Render(base)
		if err != nil {
			return fault.New(fault.BadInput, "%w", err)
		}
		for _, w := range r.Warnings {
			fmt.Fprintln(cmd.ErrOrStderr(), "pivotctl: warning:", w)
		}
		manifests = append(manifests, r.Manifests...)
	}
	for i, m := range manifests {
		if i > 0 && f.format == "yaml" {
			fmt.Fprintln(cmd.OutOrStdout(), "---")
		}
		if err := writeManifest(cmd.OutOrStdout(), m, f.format); err != nil {
			return err
		}
	}
	return nil
}

// checkRole checks that the role is that of one of the pools or, without pools, could be.
func (f *ctrcfgFlags) checkRole(pools []containerruntime.Pool, warnings io.Writer) error {
	if f.role == "" || len(pools) == 0 {
		warnRole(warnings, f.role)
		return nil
	}
	var names []string
	for _, pool := range pools {
		names = append(names, pool.Name)
	}
	return checkRole(f.role, "pools given", names)
}

// readRuntimeConfigs reads all files and reports the problems of all together.
func readRuntimeConfigs(ctx context.Context, files []string, warnings io.Writer) (containerruntime.Objects, error) {
	var all containerruntime.Objects
	var report problem.Report
	for _, file := range files {
		data, ok, err := input.File{What: "the ContainerRuntimeConfig", Path: file, Max: document.MaxSize}.Reported(ctx, &report)
		if err != nil {
			return all, err
		}
		if !ok {
			continue
		}
		objects, problems := containerruntime.Decode(file, data)
		all.Configs = append(all.Configs, objects.Configs...)
		all.Pools = append(all.Pools, objects.Pools...)
		report = append(report, problems...)
	}
	if !report.Failed() && len(report) > 0 {
		fmt.Fprintln(warnings, report)
	}
	return all, report.Err("ContainerRuntimeConfigs")
}

// base returns those files of the rendered MachineConfig that settings may change.
func (f *ctrcfgFlags) base(ctx context.Context) (map[string][]byte, error) {
	files := map[string][]byte{}
	if f.rendered == "" {
		return files, nil
	}
	data, err := input.File{What: "the rendered MachineConfig", Path: f.rendered, Max: document.MaxSize}.Read(ctx)
	if err != nil {
		return nil, err
	}
	all, report := authored.Decode(f.rendered, data, authored.Rules{})
	if err := report.Err("MachineConfig " + f.rendered); err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, fault.New(fault.BadInput, "cannot use %s: it holds %d MachineConfigs, not one", f.rendered, len(all)).
			WithHint("give the rendered MachineConfig of one pool: oc get machineconfig rendered-… -o yaml")
	}
	return files, all[0].AddFiles(files, containerruntime.Changes)
}
