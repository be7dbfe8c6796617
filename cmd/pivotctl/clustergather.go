package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/cluster/view"
	"machine-pivot/internal/fault"
)

func clusterGatherCommand(build cli.Build) *cobra.Command {
	var f clusterFlags
	var file string
	var namespaces []string
	cmd := &cobra.Command{
		Use:   "gather",
		Short: "Write everything that a report of a problem needs to one archive, without secrets",
		Long: "Write everything that a report of a problem needs to one archive: a summary, the objects of the fleet, and\n" +
			"the logs of the agents. The contents of files, environments, keys, tokens, hashes of passwords and\n" +
			"credentials in URLs are left out; docs/cluster-view.md says how, and what a program cannot recognize.\n" +
			"Read summary.txt in the archive before you publish it.",
		Example: "  pivotctl cluster gather -o report.tar.gz",
		Args:    cli.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := f.client(cmd.Context())
			if err != nil {
				return err
			}
			now := time.Now()
			var archive bytes.Buffer
			g := view.Gatherer{Client: client, Namespaces: namespaces, Program: f.program, Now: now}
			if err := g.Gather(cmd.Context(), &archive); err != nil {
				return err
			}
			if file == "-" {
				_, err := cmd.OutOrStdout().Write(archive.Bytes())
				return err
			}
			name := cmp.Or(file, now.UTC().Format("pivot-gather-20060102-150405.tar.gz"))
			if err := writeNew(name, archive.Bytes()); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), name)
			return nil
		},
	}
	f.add(cmd, build)
	cmd.Flags().StringVarP(&file, "output", "o", "", "`FILE` to write, which must not exist; - is standard output (default: pivot-gather-TIME.tar.gz)")
	cmd.Flags().StringSliceVar(&namespaces, "namespace", []string{"pivot-agent", "pivot-fleet"}, "`NAMESPACE` of the agents or controllers; it can be given several times")
	return cmd
}

// writeNew writes a file that does not exist yet, readable for its owner only.
func writeNew(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fault.New(fault.CannotWrite, "cannot write the archive: %w", err).WithHint("give --output a file that does not exist")
	}
	if _, err = f.Write(data); err == nil {
		err = f.Close()
	} else {
		_ = f.Close()
	}
	if err != nil {
		_ = os.Remove(name)
		return fault.New(fault.CannotWrite, "cannot write the archive: %w", err)
	}
	return nil
}
