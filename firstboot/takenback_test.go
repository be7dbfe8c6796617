package firstboot_test

import (
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/test/hostdir"
)

// expectHeld wants a system that somebody went back to to be left alone: nothing is
// made, no reboot, and kubelet's unit no longer finds a first boot that is open.
func expectHeld(t *testing.T, h *hostdir.Host, reboots int) {
	t.Helper()
	calls := len(h.Ostree.Calls)
	notes, err := bootWith(t, h, "ostree")
	if err != nil {
		t.Fatal(err)
	}
	expectOld(t, h)
	if h.Reboots != reboots || len(h.Ostree.Calls) != calls {
		t.Errorf("%d reboots, want %d; calls %q", h.Reboots, reboots, h.Ostree.Calls[calls:])
	}
	for _, want := range []string{"went back", h.Commit + ".0", "pivot firstboot --again"} {
		if !strings.Contains(notes, want) {
			t.Errorf("it does not say %q: %s", want, notes)
		}
	}
	if h.Read(firstboot.EncapsulatedPath) != nil || h.Read(firstboot.EncapsulatedPath+".bak") == nil {
		t.Error("the first boot is still open")
	}
	expectUndone(t, h, "image: booted")
}

// TestTakenBack (D26): who boots the old system after a first boot, by the boot menu
// or because another tool made it the default again, stays there until told otherwise.
func TestTakenBack(t *testing.T) {
	h := arrived(t)
	h.BootEntry(1)
	expectHeld(t, h, 1)
	h.Boot() // the menu's choice was for one boot
	expectNew(t, h)
	expectStatus(t, h)

	goBack(t, h)
	expectOld(t, h)
	expectUndone(t, h, "image: booted")
	if err := h.Undeploy(1); err != nil { // rpm-ostree cleanup -r
		t.Fatal(err)
	}
	h.Boot()
	if err := boot(t, h); err != nil || h.Reboots != 1 {
		t.Errorf("without the new deployment: %v, %d reboots", err, h.Reboots)
	}
	expectOld(t, h)
	expectAgain(t, h)
}

// goBack makes the old system the default, as rpm-ostree rollback does, and boots it.
func goBack(t *testing.T, h *hostdir.Host) {
	t.Helper()
	if _, err := h.Run(t.Context(), "ostree", "admin", "set-default", "1"); err != nil {
		t.Fatal(err)
	}
	h.Boot()
}

// expectAgain wants a machine to go forward because it is told to.
func expectAgain(t *testing.T, h *hostdir.Host) {
	t.Helper()
	reboots := h.Reboots
	if err := run(t, h, firstboot.FirstBoot{Again: true}); err != nil {
		t.Fatal(err)
	}
	if h.Reboots != reboots+1 {
		t.Fatalf("%d reboots, want one more than %d", h.Reboots, reboots)
	}
	h.Boot()
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	expectNew(t, h)
	expectClosed(t, h)
	expectStatus(t, h)
	if h.Reboots != reboots+1 {
		t.Errorf("%d reboots, want one more than %d", h.Reboots, reboots)
	}
}

// TestTakenBackInEarnest is the same with the old system as the default and the new
// one still there, asked to go forward at once; and with a MachineConfig that somebody
// has changed in the old system, which asks for itself.
func TestTakenBackInEarnest(t *testing.T) {
	h := arrived(t)
	goBack(t, h)
	expectHeld(t, h, 1)
	expectAgain(t, h)
	goBack(t, h)
	h.Write(firstboot.EncapsulatedPath, []byte(strings.Replace(string(h.Read(firstboot.EncapsulatedPath)), "nosmt ", "nosmt quiet ", 1)))
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	h.Boot()
	if err := boot(t, h); err != nil || !strings.Contains(h.Options(), " quiet ") {
		t.Errorf("what is asked for anew: %v, options %q", err, h.Options())
	}
	expectClosed(t, h)
}

// TestReinstalled: a machine that was installed anew, with its /var, is not one that
// somebody went back on: the journal tells of a system that is gone.
func TestReinstalled(t *testing.T) {
	h := arrived(t)
	h.BootEntry(1)
	if err := h.Undeploy(0); err != nil {
		t.Fatal(err)
	}
	expectOld(t, h)
	finish(t, h)
}

// TestPutBack: the file that closing moved away, put back on the new system, asks for
// what is missing there.
func TestPutBack(t *testing.T) {
	h := arrived(t)
	h.Write("/etc/kubernetes/openshift-workload-pinning", []byte("{}"))
	h.Write(firstboot.EncapsulatedPath, h.Read(firstboot.EncapsulatedPath+".bak"))
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	h.Boot()
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	expectNew(t, h)
	expectClosed(t, h)
}
