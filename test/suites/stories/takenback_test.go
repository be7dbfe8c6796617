package stories_test

import (
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/internal/machine"
	"machine-pivot/test/worlds/hostdir"
)

// expectHeld checks that the first boot leaves a rolled-back system alone: it makes no
// deployment and no reboot, and closes the first boot, so that kubelet's unit finds none open.
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
	if open, err := machine.OpenFirstBoot(h.Root); err != nil || open != "" || h.Read(firstboot.EncapsulatedPath+".bak") == nil {
		t.Error("the first boot is still open")
	}
	expectUndone(t, h, "image: booted")
}

// TestTakenBack: a machine that boots the old system after its first boot, by the boot menu or because another tool
// made it the default, stays there until --again.
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

// expectAgain checks that a machine enters the new system when it is told to.
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

// TestTakenBackInEarnest: the old system is the default and the new deployment still exists. The machine enters the new
// one when told to, or by itself if the MachineConfig was changed in the old system.
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

// TestReinstalled: a machine that was reinstalled and kept its /var counts as new, not as
// rolled back: the journal is about a system that does not exist any more.
func TestReinstalled(t *testing.T) {
	h := arrived(t)
	h.BootEntry(1)
	if err := h.Undeploy(0); err != nil {
		t.Fatal(err)
	}
	expectOld(t, h)
	finish(t, h)
}

// TestPutBack: if the closed file is renamed back on the new system, the first boot restores
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
