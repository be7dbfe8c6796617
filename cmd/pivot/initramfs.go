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
	"machine-pivot/internal/machine"
)

// Limits in an initramfs, because the machine's consoles and remote access wait for it. What
// was imported until then is kept.
const (
	earlyRetry           = 90 * time.Second // for transient errors
	earlyRegistryTimeout = 30 * time.Second // for a registry that does not respond
	earlyTimeout         = time.Hour        // for the whole run
)

// earlyBoot runs a first boot in the initramfs.
func earlyBoot(cmd *cobra.Command, flags *hostFlags, boot firstboot.FirstBoot) error {
	if err := initramfs.Enter(flags.root); err != nil {
		flags.results.result.Outcome = machine.OutcomeAside
		return aside(cmd, err)
	}
	if !cmd.Flags().Changed("retry-for") {
		flags.retryFor = earlyRetry
	}
	flags.early = initramfs.New(flags.root)
	m, err := flags.machine(cmd)
	if err != nil {
		return err
	}
	boot.Machine = m
	ctx, cancel := context.WithTimeout(cmd.Context(), earlyTimeout)
	defer cancel()
	err = withLock(m.Host, func() error { return boot.Run(ctx) })
	if _, reported := errors.AsType[cli.Reported](err); err != nil && !reported {
		flags.results.result.Outcome = machine.OutcomeAside
		return aside(cmd, err)
	}
	return err
}

// aside leaves the first boot to the started system, because the run could not start.
func aside(cmd *cobra.Command, err error) error {
	newLog(cmd.ErrOrStderr()).Warnf("stepping aside for the started system: %v", err)
	return nil
}

// earlyMachine adapts a machine to the initramfs: its tools run in a chroot.
func (f *hostFlags) earlyMachine(m *machine.Machine) {
	if f.early == nil {
		return
	}
	m.Place = firstboot.Initramfs{Early: f.early, Disk: m.Host.Disk}
	m.Host.Run = host.RunIn(f.root)
	m.Puller.Patience = earlyRegistryTimeout
}
