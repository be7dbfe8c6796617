package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"machine-pivot/firstboot"
	"machine-pivot/internal/cli"
	"machine-pivot/internal/host"
	"machine-pivot/internal/initramfs"
)

// What is bounded in an initramfs, which the machine's consoles and remote access
// wait for. What was imported by then is kept.
const (
	earlyRetry    = 90 * time.Second // of what fails for a transient reason
	earlyPatience = 30 * time.Second // with a silent registry
	earlyBound    = time.Hour        // of the whole run
)

// earlyBoot runs a first boot in the initramfs, where the program finds itself.
func earlyBoot(cmd *cobra.Command, flags *hostFlags, boot firstboot.FirstBoot) error {
	if err := initramfs.Enter(flags.root); err != nil {
		return aside(cmd, err)
	}
	if !cmd.Flags().Changed("retry-for") {
		flags.retryFor = earlyRetry
	}
	flags.early = initramfs.New(flags.root)
	machine, err := flags.machine(cmd)
	if err != nil {
		return err
	}
	boot.Machine = machine
	ctx, cancel := context.WithTimeout(cmd.Context(), earlyBound)
	defer cancel()
	err = alone(machine.Host, func() error { return boot.Run(ctx) })
	if _, reported := errors.AsType[cli.Reported](err); err != nil && !reported {
		return aside(cmd, err)
	}
	return err
}

// aside steps aside where the run could not even begin.
func aside(cmd *cobra.Command, err error) error {
	newLog(cmd.ErrOrStderr()).Warnf("stepping aside for the started system: %v", err)
	return nil
}

// earlyMachine makes a machine that of the initramfs: its tools run in a chroot.
func (f *hostFlags) earlyMachine(m *firstboot.Machine) {
	if f.early == nil {
		return
	}
	m.Place = firstboot.Initramfs{Early: f.early, Disk: m.Host.Disk}
	m.Host.Run = host.RunIn(f.root)
	m.Puller.Patience = earlyPatience
}
