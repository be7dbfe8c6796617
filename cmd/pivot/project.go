package main

import (
	"github.com/spf13/cobra"

	"machine-pivot/firstboot"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/host"
)

func projectCommand() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   "project",
		Short: "Make /var what the system that runs asks of it, as each boot does",
		Long: "Make /var what the system that runs asks of it, as pivot-project.service does early in each boot.\n" +
			"What another system had projected and this one does not ask for is taken back, and what that had replaced\n" +
			"is put back. What somebody has changed since stays, and is named.",
		Example: "  pivot project",
		Args:    cli.Usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckRoot(root); err != nil {
				return err
			}
			log := newLog(cmd.ErrOrStderr())
			m := firstboot.Machine{Host: host.New(root)}
			unlock, err := m.Host.Lock()
			if err != nil {
				return err
			}
			defer unlock()
			changed, err := m.Project(noteTo(log))
			for _, path := range changed {
				log.Info("projected " + path)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&root, "root", "/", "root `DIR` of the machine")
	cli.Directories(cmd, "root")
	return cmd
}
