package e2e_test

import (
	"net"
	"strings"
	"testing"

	"machine-pivot/internal/settings"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/fleetlock"
	"machine-pivot/test/worlds/vm"
)

// inAFleet (P79) rebases a machine to B with a slot of its fleet's lock, which a unit releases in B.
func inAFleet(t *testing.T, l *bootlab.Lab) {
	server := fleetlock.StartPlain(t, 1)
	lines := "fleetlock=" + strings.Replace(server.URL, "127.0.0.1", bootlab.GuestHost, 1) + "\nhealth=systemd-networkd.service\n"
	files := append(bootlab.Typed("move", "pivot rebase -r "+l.Wanted().Image+" --append-karg fleet.moved", "KernelCommandLine=!fleet.moved"),
		vm.TreeFile{Path: settings.Path, Mode: 0o644, Content: []byte(lines)})
	files = append(files, bootlab.Typed("settled", "while [ -e /var/lib/pivot/slot ]; do sleep 1; done; echo @@settled", "KernelCommandLine=fleet.moved")...)
	m := machineWith(t, l, bootlab.Setup{Files: files})
	if l.Boxed {
		l.InBox(m, server.Listener.Addr().(*net.TCPAddr).Port)
	}
	server.Down(1)
	first := boot(t, m, vm.BootOptions{})
	if first.Exit != vm.Rebooted || !first.Said("has granted a slot") {
		t.Fatalf("the machine %s, want a slot and a reboot", first.Exit)
	}
	if holders := server.Holders("default"); len(holders) != 1 {
		t.Errorf("over the reboot %q have the slot", holders)
	}
	second := boot(t, m, vm.BootOptions{})
	if second.Exit != vm.PoweredOff || !second.Said("@@settled") {
		t.Fatalf("the machine %s, want that it gives the slot back", second.Exit)
	}
	if holders, asked := server.Holders("default"), server.Asked(); len(holders) > 0 || asked != "pre-reboot pre-reboot steady-state" {
		t.Errorf("%q have the slot, asked was %q", holders, asked)
	}
	if r := report(t, second); r.Version != "B.2" || r.FailedUnits != "" {
		t.Errorf("version %s, failed units %q", r.Version, r.FailedUnits)
	}
}
