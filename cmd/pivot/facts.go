package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"machine-pivot/internal/api"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/input"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/printable"
)

func factsCommand() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   "facts",
		Short: "Print what images are judged by for this machine, as JSON",
		Long: "Print what decides whether this machine can start an image: devices, file systems, what unlocks its disks,\n" +
			"and what its initramfs has. pivot image check --host judges an image by it, elsewhere. No secret is printed.",
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
	cmd.Flags().StringVar(&root, "root", "/", "use `DIR` as the root directory of the machine")
	cli.Directories(cmd, "root")
	return cmd
}

// maxFacts limits a document with facts, in bytes. A machine with a hundred disks has some 200 KB.
const maxFacts = 16 << 20

// readFacts reads what pivot facts has printed.
func readFacts(cmd *cobra.Command, path string) (facts machine.Facts, err error) {
	data, err := input.File{What: "the facts", Path: path, Max: maxFacts, Stdin: cmd.InOrStdin()}.Read(cmd.Context())
	if err != nil {
		return facts, err
	}
	var kind struct{ Kind api.Kind }
	if err = json.Unmarshal(data, &kind); err == nil {
		err = json.Unmarshal(data, &facts)
	}
	if err == nil && kind.Kind == api.Facts && facts.Today != nil {
		return facts, nil
	}
	if err == nil {
		err = fmt.Errorf("it is no whole document of kind %s", api.Facts)
	}
	return facts, fault.New(fault.BadInput, "cannot use the facts in %s: %w", path, err).WithHint("have the machine print them: pivot facts")
}
