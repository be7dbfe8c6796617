package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
)

// The units that end the first boots of others: Ignition's, on Fedora CoreOS and RHCOS, and systemd's own.
const (
	ignitionEnds = "coreos-ignition-firstboot-complete.service"
	systemdEnds  = "systemd-machine-id-commit.service"
)

// uninitialized is the content of /etc/machine-id with which systemd starts a first boot (machine-id(5)).
const uninitialized = "uninitialized"

// CheckIgnitionEnded returns an error, which names the unit, as long as the next boot would run Ignition again. A
// machine is rebooted in a first boot only when Ignition's stamp is gone. Fedora CoreOS removes it in the started
// system, in a unit that nothing waits for, and with the stamp each boot runs Ignition, in whatever deployment it
// starts. A stamp that somebody has made since, to have Ignition run again, is none of a first boot. The running kernel
// does not know it, and pivot's own first boot is over (not open).
func (h *Host) CheckIgnitionEnded(open bool) error {
	there, err := h.Has(ignitionStamp)
	if err != nil || !there {
		return err
	}
	line, err := h.cmdline()
	if err != nil {
		return err
	}
	if !open && !slices.ContainsFunc(line, isIgnitionArgument) {
		return nil
	}
	return fault.New(fault.Unavailable, "cannot leave Ignition's first boot: %s has not removed %s, so the next boot would run Ignition again", ignitionEnds, ignitionStamp).
		WithHint("see why: systemctl status %s; the next try continues once %s is gone", ignitionEnds, ignitionStamp)
}

func isIgnitionArgument(arg string) bool {
	key, _, _ := strings.Cut(arg, "=")
	return key == "ignition.firstboot"
}

// CheckIdentity returns an error, which names the unit, as long as the machine's ID is only in memory. A deployment
// gets the /etc of a first boot only when /etc/machine-id has the ID on disk. Until then the new deployment would
// inherit a file that says uninitialized. Its first boot would be systemd's too, with presets and units for first
// boots, and with another ID. What is on disk is in the deployment's directory: systemd mounts the ID over
// /etc/machine-id.
func (h *Host) CheckIdentity() error {
	booted, err := h.booted()
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(booted.Path, "etc/machine-id"))
	if err != nil || strings.TrimSpace(string(data)) != uninitialized {
		return nil // what cannot be read here fails where /etc is copied
	}
	return fault.New(fault.Unavailable, "cannot leave systemd's first boot: %s has not written the machine's ID to /etc/machine-id, so the next boot would be a first boot again", systemdEnds).
		WithHint("see why: systemctl status %s; to write the ID: systemd-machine-id-setup --commit", systemdEnds)
}
