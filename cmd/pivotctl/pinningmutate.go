package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/input"
	"machine-pivot/internal/machineconfig/document"
	"machine-pivot/internal/pods"
	"machine-pivot/internal/problem"
)

// mutateFlags are the inputs of pinning mutate.
type mutateFlags struct {
	cli.Output
	inPlace        bool
	shares, syntax string
	namespaces     []string
}

// mutation is the result for all manifests.
type mutation struct {
	Manifests []mutated `json:"manifests"`
}

// mutated is the result for a manifest.
type mutated struct {
	File string `json:"file"`
	pods.Decision
	Problems problem.Report `json:"problems,omitempty"`

	content []byte
}

func pinningMutateCommand() *cobra.Command {
	var flags mutateFlags
	cmd := &cobra.Command{
		Use:   "mutate MANIFEST…",
		Short: "Modify static pod manifests like a kubelet with workload partitioning",
		Long: "Modify static pod manifests like a kubelet with workload partitioning: CPU requests become requests for the\n" +
			"workload's resource, and an annotation passes the CPU shares of each container to CRI-O.\n" +
			"The manifests are printed. With --in-place they are replaced instead: all of them or, if one is refused,\n" +
			"none.",
		Example: "  pivotctl pinning mutate etcd-pod.yaml\n" +
			"  pivotctl pinning mutate --in-place /etc/kubernetes/manifests/etcd-pod.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := flags.options(cmd.Context())
			if err != nil {
				return err
			}
			return flags.run(cmd, args, options)
		},
	}
	flags.Output.Add(cmd, api.Mutation)
	cmd.Flags().Lookup("output").Usage = "output format; text: the manifests; json, yaml: each decision with its reason"
	cmd.Flags().BoolVar(&flags.inPlace, "in-place", false, "replace the files instead of printing the manifests")
	flags.shares, flags.syntax = "kubelet", "json"
	cli.OneOf{Value: &flags.shares, Allowed: []string{"kubelet", "enhancement"}}.Add(cmd, "shares", "how to compute CPU shares: for 400m, kubelet gives 409, enhancement 400")
	cli.OneOf{Value: &flags.syntax, Allowed: []string{"json", "plain"}}.Add(cmd, "syntax", "syntax of the annotations: json, or plain for CRI-O 1.21.0")
	cmd.Flags().StringArrayVar(&flags.namespaces, "namespaces", nil, "`FILE` with namespaces; workloads that they do not allow are refused (repeatable)")
	return cmd
}

func (f *mutateFlags) options(ctx context.Context) (pods.Options, error) {
	o := pods.Options{
		Shares: map[string]func(int64) int64{"kubelet": pods.Shares, "enhancement": pods.SeedShares}[f.shares],
		Syntax: map[string]pods.Syntax{"json": pods.JSONSyntax, "plain": pods.PlainSyntax}[f.syntax],
	}
	for _, file := range f.namespaces {
		data, err := input.File{What: "the namespaces", Path: file, Max: document.MaxSize}.Read(ctx)
		if err != nil {
			return o, err
		}
		allowed, report := pods.Namespaces(file, data)
		if err := report.Err("the namespaces"); err != nil {
			return o, err
		}
		if o.Allowed == nil {
			o.Allowed = map[string]string{}
		}
		maps.Copy(o.Allowed, allowed)
	}
	return o, nil
}

func (f *mutateFlags) run(cmd *cobra.Command, args []string, o pods.Options) error {
	var all []mutated
	refused := false
	for _, file := range args {
		m, err := mutateFile(cmd.Context(), file, o)
		if err != nil {
			return err
		}
		show(cmd.ErrOrStderr(), m.Problems)
		if m.Problems.Failed() {
			refused = true
		} else if m.Warning != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "pivotctl: warning: %s: %s\n", file, m.Warning)
		}
		all = append(all, m)
	}
	if f.inPlace && !refused {
		if err := replaceAll(all); err != nil {
			return err
		}
	}
	text := func(w io.Writer) { printMutated(w, all) }
	if !f.inPlace {
		text = func(io.Writer) { writeMutated(cmd.OutOrStdout(), all) } // manifests are documents: do not escape them
	}
	if err := f.Write(cmd.OutOrStdout(), mutation{all}, text); err != nil {
		return err
	}
	if refused {
		return cli.ExitStatus(fault.BadInput.ExitStatus())
	}
	return nil
}

func mutateFile(ctx context.Context, file string, o pods.Options) (mutated, error) {
	m := mutated{File: file}
	data, ok, err := input.File{What: "the manifest", Path: file, Max: document.MaxSize}.Reported(ctx, &m.Problems)
	if err != nil || !ok {
		return m, err
	}
	m.content, m.Decision, m.Problems = pods.Mutate(file, data, o)
	return m, nil
}

// replaceAll writes the changed manifests. Kubelet reads all files of their directory, but
// ignores the temporary file, because its name begins with a dot.
func replaceAll(all []mutated) error {
	for _, m := range all {
		if err := hostfiles.CheckNamed(m.File); err != nil {
			return fault.New(fault.BadInput, "%w", err).WithHint("name a file, or leave out --in-place: then the manifests are printed")
		}
	}
	for _, m := range all {
		if !m.Changed {
			continue
		}
		if err := hostfiles.ReplaceNamed(hostfiles.OS{}, m.File, m.content, 0o644); err != nil {
			return fault.New(fault.CannotWrite, "%w", err)
		}
	}
	return nil
}

// printMutated prints the decisions for manifests that were replaced in place.
func printMutated(w io.Writer, all []mutated) {
	for _, m := range all {
		if m.Problems.Failed() {
			continue
		}
		change := map[bool]string{true: "changed", false: "unchanged"}[m.Changed]
		fmt.Fprintf(w, "%s: %s: %s\n", m.File, change, m.Reason)
		for _, c := range m.Containers {
			fmt.Fprintf(w, "  container %s: %s; CPU shares %d\n", c.Name, c.Reason, c.Shares)
		}
		for _, r := range m.Removed {
			fmt.Fprintf(w, "  annotation %s removed: %s\n", r.Key, r.Reason)
		}
	}
}

// writeMutated writes the manifests, for programs.
func writeMutated(w io.Writer, all []mutated) {
	written := 0
	for _, m := range all {
		if m.Problems.Failed() {
			continue
		}
		if written++; written > 1 && !bytes.HasPrefix(m.content, []byte("---")) {
			fmt.Fprintln(w, "---")
		}
		fmt.Fprintln(w, strings.TrimSuffix(string(m.content), "\n"))
	}
}
