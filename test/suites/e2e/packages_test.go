package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// telco runs a first boot with everything that a telco (RAN) node needs: another image, kernel
// arguments, CPU partitioning, a realtime kernel and an extension. It must take one reboot.
func telco(t *testing.T, l *bootlab.Lab) {
	realtime, err := l.Realtime(t.Context(), vm.Builder{Log: testLog{t}})
	if err != nil {
		t.Fatal(err)
	}
	want := l.Wanted()
	want.Image, want.ExtensionsImage = realtime.Image, realtime.Extensions
	want.KernelType, want.Extensions = "realtime", []string{"usbguard"}
	want.Kargs = append(want.Kargs, "nohz=on rcu_nocb_poll")
	says := bootlab.Typed("realtime", `echo "@@realtime $(cat /sys/kernel/realtime) $(cat /usr/share/usbguard)" >/dev/console`, "PathExists=/sys/kernel/realtime")
	m, err := l.MachineOfRpmOstree(t.Context(), diskName(t), bootlab.Setup{Encapsulated: encapsulated(t, want), Files: says}, "", testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	expectPivot(t, boot(t, m, vm.BootOptions{}))
	second := boot(t, m, vm.BootOptions{})
	expectArrived(t, second, want)
	if got := report(t, second).Kernel; got != realtime.Release || !strings.Contains(got, "-rt-") {
		t.Errorf("kernel %s, want %s", got, realtime.Release)
	}
	if !slices.ContainsFunc(second.Serial, func(l vm.SerialLine) bool { return strings.Contains(l.Text, "@@realtime 1 usbguard") }) {
		t.Error("the kernel does not say that it is a realtime kernel, or the extension is not there")
	}
}
