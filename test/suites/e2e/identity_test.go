package e2e_test

import (
	"slices"
	"testing"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// lateName (P102) has a machine that gets its name in the old system, as from DHCP. The new system gets it only after
// the first boot has reported that it waits. The first boot is closed after that, although its unit has a host name of
// its own (ProtectHostname=).
func lateName(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	const names = "hostname worker-7"
	early := namer("named", "oneshot", "Before=pivot-firstboot.service\nConditionKernelCommandLine=!nosmt", names)
	late := namer("named-late", "exec", "ConditionKernelCommandLine=nosmt", "until grep -q \"before the reboot it was\" /run/pivot/status.json; do sleep 0.1; done; "+names)
	files := append(append(early, late...), vm.TreeFile{Path: "/etc/hostname", Mode: 0o644, Content: []byte("localhost\n")})
	m := machineWith(t, l, bootlab.Setup{Encapsulated: encapsulated(t, want), Files: files})
	expectPivot(t, boot(t, m, vm.BootOptions{}))
	b := boot(t, m, vm.BootOptions{})
	expectSaid(t, b, `the host name is "localhost"; before the reboot it was "worker-7"`, "first boot closed")
	if b.Said("warning: the host name") {
		t.Error("the name that came late is said to be lost")
	}
	expectArrived(t, b, want)
}

// lostLater (P102) has a machine that loses its name with a later change. No unit proves that change, but the status compares.
func lostLater(t *testing.T, l *bootlab.Lab) {
	m := machineWith(t, l, bootlab.Setup{Files: inTurn("hostname worker-7; pivot rebase " + l.Image + " -r")})
	expectRebooted(t, boot(t, m, vm.BootOptions{}))
	notes := report(t, boot(t, m, vm.BootOptions{})).Status.Notes
	if want := `since the last change: the host name is "pivot"; before the reboot it was "worker-7"`; !slices.Equal(notes, []string{want}) {
		t.Errorf("notes %q, wanted only %q", notes, want)
	}
}

// namer returns the files of a unit that runs a command beside what else starts.
func namer(name, kind, unit, command string) []vm.TreeFile {
	const dir = "/etc/systemd/system/"
	text := "[Unit]\n" + unit + "\n[Service]\nType=" + kind + "\nExecStart=/bin/sh -ec '" + command + "'\n"
	return []vm.TreeFile{
		{Path: dir + name + ".service", Mode: 0o644, Content: []byte(text)},
		{Path: dir + "multi-user.target.wants/" + name + ".service", Symlink: "../" + name + ".service"},
	}
}
