package main

import (
	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/host"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/printable"
)

func factsCommand() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   "facts",
		Short: "Print what images are judged by for this machine, as JSON",
		Long: "Print what decides whether this machine can start an image: devices, file systems, what unlocks its disks,\n" +
			"and what its initramfs has. On another machine, \"pivot image check --host\" judges an image by this\n" +
			"output. No secret is printed.",
		Example: "  pivot facts > node7.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckRoot(root); err != nil {
				return err
			}
			facts, err := machine.FactsOf(cmd.Context(), host.New(root))
			if err != nil {
				return err
			}
			document, err := api.MarshalIndent(api.Facts, facts)
			if err == nil {
				_, err = cmd.OutOrStdout().Write(printable.JSON(document))
			}
			return err
		},
	}
	cli.AddRoot(cmd, &root)
	return cmd
}
