package e2e_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// watchdogConf has systemd start the machine's watchdog.
const watchdogConf = "[Manager]\nRuntimeWatchdogSec=2min\n"

// TestWatchdog (P59) tries new systems that hang, on a machine with a hardware watchdog: it returns to the old system
// with nobody there. systemd hangs, or the kernel after a panic that does not reboot; or the kernel never reaches
// systemd, on a machine with firmware, played by GRUB, that starts the watchdog. It is part of "make nightly".
func TestWatchdog(t *testing.T) {
	l := newLab(t, vm.GuestSpec{Suite: vm.Trixie})
	needGRUB(t)
	together(t, []bootCase{
		{"after the start of systemd", func(t *testing.T) { watchedBySystemd(t, alone(t, l)) }},
		{"before the start of systemd", func(t *testing.T) { watchedByFirmware(t, alone(t, l)) }},
	})
}

// newWatched makes a machine with a watchdog, which tries new systems in turn with some flags, and shows its
// status after that.
func newWatched(t *testing.T, l *bootlab.Lab, flags ...string) grubMachine {
	t.Helper()
	var commands []string
	for _, f := range flags {
		commands = append(commands, "pivot rebase "+l.Wanted().Image+" --append-karg trial.new --try=1h "+f)
	}
	m := newGRUBMachine(t, l, grubSetup{}, bootlab.Setup{Files: slices.Concat(
		inTurn(append(commands, "pivot status")...),
		bootlab.Typed("freeze", "kill -SEGV 1", "KernelCommandLine=trial.freezes"),
		bootlab.Typed("panic", "echo c >/proc/sysrq-trigger", "KernelCommandLine=trial.panics"),
		[]vm.TreeFile{{Path: "/etc/systemd/system.conf.d/watchdog.conf", Mode: 0o644, Content: []byte(watchdogConf)}},
	)})
	m.Extra = append(m.Extra, "-device", "i6300esb")
	return m
}

// hasFailed is what the old system says of a new one that has hung.
const hasFailed = "the new system has failed its trial: it"

func watchedBySystemd(t *testing.T, l *bootlab.Lab) {
	m := newWatched(t, l, "--append-karg trial.freezes", "--append-karg trial.panics")
	if b := m.boot(vm.Rebooted, "booted once, by a hook in GRUB"); b.Said("a new system that hangs stays") {
		t.Error("the machine says that nothing ends a hang, and its watchdog runs")
	}
	m.hangs("watchdog0: watchdog did not stop!") // systemd has closed it without the word that stops it
	m.boot(vm.Rebooted, hasFailed)               // and the next try
	m.hangs("Kernel panic - not syncing: sysrq triggered crash")
	m.returned(hasFailed)
}

func watchedByFirmware(t *testing.T, l *bootlab.Lab) {
	m := newWatched(t, l, "")
	m.boot(vm.Rebooted, "booted once, by a hook in GRUB")
	if err := m.ChangeBoot(t.Context(), "cat >grub2/firmware.cfg <<'END'\n"+vm.FirmwareWatchdog+"END\n"); err != nil {
		t.Fatal(err)
	}
	m.changeNew(hangs)
	m.hangs(hasHung)
	m.returned(neverUp) // with the firmware's watchdog, which the kernel takes over
}

// returned powers the machine on, which says why the old system runs, and stays with it.
func (m grubMachine) returned(says string) {
	m.t.Helper()
	r := report(m.t, m.boot(vm.PoweredOff, says))
	if r.Version != "A.1" || strings.Contains(r.Cmdline, "trial.new") || r.FailedUnits != "" {
		m.t.Errorf("version %s, command line %q, failed units %q", r.Version, r.Cmdline, r.FailedUnits)
	}
}

// hangs powers the machine on, which hangs after it says something, until its watchdog resets it.
func (m grubMachine) hangs(says string) {
	m.t.Helper()
	patient := vm.BootOptions{PastPanic: true, Limits: vm.Limits{Idle: 20 * time.Minute}}
	m.bootWith(patient, vm.WatchedOut, says)
}
