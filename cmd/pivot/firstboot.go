package main

import (
	"github.com/spf13/cobra"

	"machine-pivot/firstboot"
	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/settings"
)

func firstBootCommand() *cobra.Command {
	var flags hostFlags
	var file string
	var noReboot, again bool
	cmd := &cobra.Command{
		Use:   "firstboot",
		Short: "Complete the first boot: pull, deploy, reboot once, then verify and close",
		Long: "Complete the first boot: pull the image, create the deployment and reboot once; on the next boot, verify\n" +
			"the result and close the first boot. To configure it, set pivot.mode=, pivot.on-failure=,\n" +
			"pivot.reboot-method= and pivot.image-kargs= on the kernel command line, or the same keys without\n" +
			"\"pivot.\" in " + settings.Path + ".",
		Example: "  pivot firstboot\n" +
			"  pivot firstboot --again\n" +
			"  pivot firstboot --machineconfig-file /root/machineconfig.json --no-reboot",
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags.consoles = true
			boot := firstboot.FirstBoot{File: file, NoReboot: noReboot, Again: again}
			if initramfs.Here(flags.root) {
				return earlyBoot(cmd, &flags, boot)
			}
			m, err := flags.machine(cmd)
			if err != nil {
				return err
			}
			boot.Machine = m
			if boot.Off() {
				return nil
			}
			return withFirstBootLock(cmd.Context(), m.Host, func() error { return boot.Run(cmd.Context()) })
		},
	}
	flags.add(cmd)
	flags.addReboot(cmd)
	flags.progressFlags.add(cmd)
	flags.addResult(cmd)
	cmd.Flags().StringVar(&file, "machineconfig-file", firstboot.EncapsulatedPath, "read the encapsulated MachineConfig from `FILE`")
	cmd.Flags().BoolVar(&noReboot, "no-reboot", false, "do everything except the reboot")
	cmd.Flags().BoolVar(&again, "again", false, "run even if the first boot was completed or given up before")
	return cmd
}
