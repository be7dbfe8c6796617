package main

import (
	"github.com/spf13/cobra"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/initramfs"
)

func enterCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "enter",
		Short: "Continue the boot in a committed deployment; runs in the initramfs",
		Long: "Continue the boot in a deployment that pivot has committed in the initramfs. pivot-enter.service does this\n" +
			"if \"pivot firstboot\" has asked for it, with the setting reboot-method=enter. If it fails, the machine must\n" +
			"reboot, and the boot loader starts the same deployment.",
		Example: "  pivot enter",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !initramfs.Here("/sysroot") {
				return fault.New(fault.Refused, "cannot enter a deployment: this is no initramfs").
					WithHint("pivot-enter.service runs this in the initramfs")
			}
			request, err := initramfs.ReadEnterRequest("/run")
			if err != nil {
				return err
			}
			if err := initramfs.NewWay(request).Go(cmd.Context()); err != nil {
				return err
			}
			newLog(cmd.ErrOrStderr()).Infof("the boot continues in deployment %s", request.Deployment)
			return nil
		},
	}
}
