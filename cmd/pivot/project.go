package main

import (
	"github.com/spf13/cobra"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/host"
	"machine-pivot/internal/machine"
)

func projectCommand() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   "project",
		Short: "Update /var for the booted deployment; runs on each boot",
		Long: "Update /var for the booted deployment; pivot-project.service does this early in each boot.\n" +
			"What another deployment has projected and the booted one does not request is removed, and what it\n" +
			"replaced is restored. Anything that was changed since then is kept and reported.",
		Example: "  pivot project",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckRoot(root); err != nil {
				return err
			}
			log := newLog(cmd.ErrOrStderr())
			m := &machine.Machine{Host: host.New(root)}
			return withBootLock(cmd.Context(), m.Host, func() error {
				changed, err := m.Project(noteTo(log))
				for _, path := range changed {
					log.Info("projected " + path)
				}
				return err
			})
		},
	}
	cli.AddRoot(cmd, &root)
	return cmd
}
