package main

import "github.com/spf13/cobra"

func upgradeCommand() *cobra.Command {
	var flags moveFlags
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Move this machine to the image that the tag which it follows names now",
		Long: "Move this machine to the image that the tag which it follows names now. It follows the tag by which its\n" +
			"image was named when pivot, bootc or rpm-ostree moved to it; pivot status shows the tag. Everything else\n" +
			"stays as it is, and as with \"pivot rebase\" nothing changes if the machine has that image already.",
		Example: "  pivot upgrade -r\n  pivot upgrade --dry-run",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.change.download.check(cmd); err != nil {
				return err
			}
			upgrade, err := flags.rebase(cmd, nil)
			if err != nil {
				return err
			}
			upgrade.Upgrade = true
			return flags.carryOut(cmd, upgrade)
		},
	}
	flags.hostFlags.add(cmd)
	flags.addMove(cmd)
	return cmd
}
