package stories_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// TestLegacyInputs (P1): what the old tool's files ask for is part of the one
// transaction with its one reboot.
func TestLegacyInputs(t *testing.T) {
	h := hostdir.New(t)
	rebase := func(appended ...string) (bool, error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		reboot := h.Reboot
		h.Reboot = func(ctx context.Context) error { cancel(); return reboot(ctx) }
		defer func() { h.Reboot = reboot }()
		r := day2.Rebase{Machine: newMachine(t, h), Append: appended}
		if !r.Asked() {
			t.Error("the files ask for something")
		}
		return r.Run(ctx, day2.RunOptions{})
	}
	h.Write("/etc/pivot/kernel-args", []byte("ADD nosmt\nADD loglevel=3\nfoo\n"))
	if _, err := rebase(); fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("a line that is neither: %v", err)
	}
	h.Write("/etc/pivot/image-pullspec", []byte(h.Image+"\n"))
	h.Write("/etc/pivot/kernel-args", []byte("ADD nosmt\nADD loglevel=3\nDELETE keep\n"))
	h.Write("/run/pivot/reboot-needed", nil)
	if changed, err := rebase("loglevel=7"); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	if h.Reboots != 1 {
		t.Errorf("%d reboots asked for, want one", h.Reboots)
	}
	h.Boot()
	if h.Version() != "B.2" || !strings.HasSuffix(h.Options(), " nosmt loglevel=3 loglevel=7") || strings.Contains(h.Options(), "keep=") {
		t.Errorf("version %s with %q", h.Version(), h.Options())
	}
	if changed, err := rebase("loglevel=7"); err != nil || changed {
		t.Errorf("the same again: changed %v, %v", changed, err)
	}
	must(t, os.RemoveAll(h.Path("/run/pivot")))
	h.Write("/run/pivot", nil) // not a directory
	if changed, err := rebase("loglevel=5"); err != nil || !changed || h.Reboots != 1 {
		t.Errorf("without the file: changed %v, %v, %d reboots", changed, err, h.Reboots)
	}
}

// TestRebaseAgain: a pivot by hand can be asked for again after its commit was taken back, on a machine with files that
// are carried over without a request.
func TestRebaseAgain(t *testing.T) {
	h := hostdir.New(t)
	h.Write(pinning.DropInPath, pinning.DropIn(management(t, "0-1")))
	h.Write(pinning.KubeletPath, pinning.KubeletFile(management(t, "0-1")))
	for range 2 {
		r := day2.Rebase{Machine: newMachine(t, h), Image: h.Image}
		if _, err := r.Run(t.Context(), day2.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		expectStatusAt(t, h, pivot.PhaseCommitted)
		must(t, h.Undeploy(0))
	}
}

// TestNothingToDoWarns: whoever finds the running system to be what is asked for says so if the next boot is not.
func TestNothingToDoWarns(t *testing.T) {
	h := newTried(t)
	rebase := func(r day2.Rebase) (changed bool) {
		t.Helper()
		r.Machine, h.notes = h.newMachine(), ""
		changed, err := r.Run(t.Context(), day2.RunOptions{})
		must(t, err)
		return changed
	}
	expectWarned := func() {
		t.Helper()
		if !strings.Contains(h.notes, "warning: the next boot starts deployment ") || !strings.Contains(h.notes, "good=1") {
			t.Errorf("notes %s", h.notes)
		}
	}
	if !rebase(day2.Rebase{Append: []string{"good=1"}}) {
		t.Fatal("nothing changed")
	}
	h.Boot()
	if rebase(day2.Rebase{Append: []string{"good=1"}}) || strings.Contains(h.notes, "warning") {
		t.Errorf("notes %s", h.notes)
	}
	if !rebase(day2.Rebase{Delete: []string{"good=1"}}) || rebase(day2.Rebase{Append: []string{"good=1"}}) {
		t.Fatal("a change without its reboot, and back")
	}
	expectWarned()
	h.Write(firstboot.EncapsulatedPath, []byte(`{"spec": {"kernelArguments": ["good=1"], "config": {"ignition": {"version": "3.4.0"}}}}`))
	h.notes = ""
	must(t, (&firstboot.FirstBoot{Machine: h.newMachine(), File: firstboot.EncapsulatedPath}).Run(t.Context()))
	expectWarned()
}

// TestNothingToDoNeedsNoTrial: what only the way into a new system needs is neither required of a run that
// changes nothing, nor announced by it.
func TestNothingToDoNeedsNoTrial(t *testing.T) {
	h := newTried(t)
	h.oneShot()
	h.stage()
	staged := day2.Rebase{Machine: trying(h.newMachine(), tenMinutes), Delete: []string{"nothere"}, Reboot: true}
	if changed, err := staged.Run(t.Context(), day2.RunOptions{}); err != nil || changed {
		t.Errorf("with something staged: changed %v, %v", changed, err)
	}
	if err := h.try(tenMinutes); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "cannot try a new system: deployment ") {
		t.Errorf("a change with something staged: %v", err)
	}
	_, err := h.Run(t.Context(), "ostree", "admin", "undeploy", "0")
	must(t, err)
	h.Write(settings.Path, []byte("fallback=auto\n"))
	h.notes = ""
	nothing := day2.Rebase{Machine: h.newMachine(), Delete: []string{"nothere"}, Reboot: true}
	if changed, err := nothing.Run(t.Context(), day2.RunOptions{}); err != nil || changed || strings.Contains(h.notes, "booted once") || strings.Contains(h.notes, "watchdog") {
		t.Errorf("changed %v, %v, notes %s", changed, err, h.notes)
	}
	m := h.newMachine()
	something := day2.Rebase{Machine: m, Append: []string{"a=1"}, Reboot: true}
	if changed, err := something.Run(stoppedByReboot(t, m, h.Host), day2.RunOptions{}); err != nil || !changed || !strings.Contains(h.notes, "booted once") || !strings.Contains(h.notes, "watchdog") {
		t.Errorf("changed %v, %v, notes %s", changed, err, h.notes)
	}
}
