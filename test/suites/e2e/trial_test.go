package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// closed waits until the old system has finished closing the previous trial.
const closed = "while systemctl -q is-active pivot-trial.service; do sleep 1; done"

// tries returns the files of a unit that tries B by kexec, with options, on boots with the kernel
// argument test.NAME.
func tries(l *bootlab.Lab, name, options string) []vm.TreeFile {
	return bootlab.Typed("try-"+name, closed+"; pivot rebase "+l.Wanted().Image+" --reboot-method=kexec "+options, "KernelCommandLine=test."+name)
}

// trials (P59) tries B three times by kexec on one machine; its boot loader only boots the default entry. A check
// fails, the kernel panics, and the trial is confirmed. After each failure the machine must return to A on its own; the
// last trial must stay in B.
func trials(t *testing.T, l *bootlab.Lab) {
	m := machineWith(t, l, bootlab.Setup{Files: slices.Concat(
		tries(l, "fails", "--append-karg trial.fails --try=1s --confirm=auto --check false"),
		tries(l, "panics", "--append-karg mem=64M --append-karg panic=1 --try"),
		tries(l, "stays", "--append-karg trial.stays --try=1h"),
		bootlab.Typed("confirm", "pivot status && pivot confirm && pivot verify", "PathExists=/var/lib/pivot/trial\nConditionKernelCommandLine=trial.stays"),
	)})
	for _, c := range []struct {
		name, says string
		exit       vm.Reason
	}{
		{"fails", `the new system has failed its trial of 1s: check "false" fails`, vm.Rebooted},
		{"panics", "booted once, by kexec", vm.Panicked},
	} {
		// Boot returns an error after a panic and kills the machine.
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
	if r := journal(t, m); r.Held() || len(r.History) != 3 {
		t.Errorf("the journal has parts %v and %d transactions", r.Features, len(r.History))
	}
}

// cutTrials (P59) tries B on one machine with a health unit that fails. It cuts the power before B is entered, while B
// is on trial, and while the machine leaves B after that. The next boot must be A each time, regardless of whether the
// previous trial was closed.
func cutTrials(t *testing.T, l *bootlab.Lab) {
	const unit = `[Unit]
ConditionKernelCommandLine=trial.unit
[Service]
Type=oneshot
ExecStart=/bin/false
[Install]
WantedBy=multi-user.target
`
	m := machineWith(t, l, bootlab.Setup{Files: slices.Concat(
		[]vm.TreeFile{
			{Path: settings.Path, Mode: 0o644, Content: []byte("health=trial-health.service\n")},
			{Path: "/etc/systemd/system/trial-health.service", Mode: 0o644, Content: []byte(unit)},
			{Path: "/etc/systemd/system/multi-user.target.wants/trial-health.service", Symlink: "../trial-health.service"},
		},
		tries(l, "unit", "--append-karg trial.unit --try=1s --confirm=auto"),
		bootlab.Typed("closed", closed, "KernelCommandLine=test.closed"),
		tries(l, "waits", "--append-karg trial.unit --try=1h --confirm=auto"),
	)})
	const lacks = "unit trial-health.service is "
	for _, c := range []struct{ typed, until string }{
		{"waits", "rebooting into the system on trial"},
		{"waits", "on trial: " + lacks + "failed"},
		{"unit", "rebooting into the old system"},
	} {
		b := boot(t, m, vm.BootOptions{
			ExtraArgs: []string{"test." + c.typed}, StopWhen: func(line string) bool { return strings.Contains(line, c.until) },
		})
		if b.Exit != vm.Stopped {
			t.Fatalf("the machine %s, want its power cut when it says %q", b.Exit, c.until)
		}
		if next := entry(t, m); strings.Contains(next.Options, "trial.") {
			t.Fatalf("power cut when it said %q: the next boot has the options %q, want the old system's", c.until, next.Options)
		}
	}
	last := boot(t, m, vm.BootOptions{ExtraArgs: []string{"test.closed"}})
	if r := report(t, last); last.Exit != vm.PoweredOff || r.Version != "A.1" || r.FailedUnits != "" || r.Deployments != 1 ||
		r.Status.Phase != string(pivot.PhaseFailed) || r.Status.Error == nil || !strings.Contains(r.Status.Error.Message, lacks) {
		t.Errorf("the machine %s: version %s, failed units %q, %d deployments, status %+v, want A alone, and why B was left", last.Exit, r.Version, r.FailedUnits, r.Deployments, r.Status)
	}
}
