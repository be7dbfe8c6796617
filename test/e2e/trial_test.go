package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/pivot"
	"machine-pivot/test/lab"
	"machine-pivot/test/vm"
)

// trials (P59) tries B three times on one machine, whose boot loader only knows a default,
// by kexec: a check fails, the kernel panics, and somebody confirms. Each that fails ends in
// A without a hand on the machine, and the last one stays.
func trials(t *testing.T, l *lab.Lab) {
	image := l.Wanted().Image
	tries := func(name, options string) []vm.TreeFile {
		// The old system may still be at the close of the trial before.
		const closed = "while systemctl -q is-active pivot-trial.service; do sleep 1; done; "
		return lab.Typed("try-"+name, closed+"pivot rebase "+image+" --reboot-method=kexec "+options, "KernelCommandLine=test."+name)
	}
	m := machineWith(t, l, lab.Setup{Files: slices.Concat(
		tries("fails", "--append-karg trial.fails --try=1s --confirm=auto --check false"),
		tries("panics", "--append-karg mem=64M --append-karg panic=1 --try"),
		tries("stays", "--append-karg trial.stays --try=1h"),
		lab.Typed("confirm", "pivot status && pivot confirm && pivot verify", "PathExists=/var/lib/pivot/trial\nConditionKernelCommandLine=trial.stays"),
	)})
	for _, c := range []struct {
		name, says string
		exit       vm.Reason
	}{
		{"fails", `the new system has failed its trial of 1s: check "false" fails`, vm.Rebooted},
		{"panics", "entered once, by kexec", vm.Panicked},
	} {
		// The harness takes a panic for an error, and the power away.
		b, err := m.Boot(t.Context(), vm.BootOptions{ExtraArgs: []string{"test." + c.name}})
		if b == nil || b.Exit != c.exit || !b.Said(c.says) {
			t.Fatalf("%s: %v, want that the machine %s, and that it says %q", c.name, err, c.exit, c.says)
		}
		if next := entry(t, m); strings.Contains(next.Options, "trial.") || strings.Contains(next.Options, "mem=") {
			t.Fatalf("%s: the next boot has the options %q, want the old system's", c.name, next.Options)
		}
	}
	third := boot(t, m, vm.BootOptions{ExtraArgs: []string{"test.stays"}})
	if !third.Said("failed its trial: it never came up") || third.Exit != vm.PoweredOff {
		t.Fatalf("the machine %s, want that the old system says that the new one never came up, and the new one's power-off", third.Exit)
	}
	for _, b := range []*vm.BootResult{third, boot(t, m, vm.BootOptions{})} {
		r := report(t, b)
		if r.Version != "B.2" || !strings.Contains(r.Cmdline, "trial.stays") || r.Status.Phase != string(pivot.PhaseDone) || r.FailedUnits != "" {
			t.Errorf("version %s, command line %q, status %+v, failed units %q", r.Version, r.Cmdline, r.Status, r.FailedUnits)
		}
	}
	if r := journal(t, m); r.Trial != nil || len(r.History) != 3 {
		t.Errorf("the journal has the trial %+v and %d transactions", r.Trial, len(r.History))
	}
}
