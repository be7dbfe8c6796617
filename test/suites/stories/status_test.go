package stories_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/rpmostree"
)

// TestStatusBeforeAnything: an initramfs that steps aside before it has loaded
// the journal still leaves a status.
func TestStatusBeforeAnything(t *testing.T) {
	h := newHost(t)
	h.Write("/etc/pivot/firstboot.conf", []byte("mode=system\n"))
	m := newMachine(t, h)
	reporter := status.Reporter{Root: h.Root, Log: status.NewLog(t.Output(), nil), Notify: func(string) {}, Now: time.Now}
	m.Progress.Emit, m.Place = reporter.Emit, firstboot.Initramfs{Early: &place{}}
	b := firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath}
	if err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, err := m.Status(t.Context()); err != nil || s.Phase != pivot.PhaseIdle {
		t.Errorf("phase %q, %v, want idle", s.Phase, err)
	}
}

// committed returns a machine with rpm-ostree after a pivot by hand and before its reboot.
func committed(t *testing.T) *hostdir.Host {
	t.Helper()
	h := hostdir.New(t)
	h.InstallRpmOstree(rpmostree.Control{})
	notes := moveByHand(t, h)
	if !strings.Contains(notes, "rpm-ostree kargs") || !strings.Contains(notes, "bootc upgrade") {
		t.Errorf("it does not say what must not happen before the reboot: %s", notes)
	}
	expectStatusAt(t, h, pivot.PhaseCommitted)
	return h
}

func moveByHand(t *testing.T, h *hostdir.Host) (notes string) {
	t.Helper()
	r := day2.Rebase{Machine: newMachine(t, h), Image: h.Image, Append: []string{"nosmt"}, Pinning: management(t, "0-1")}
	r.Progress.Emit = func(e pivot.Event) { notes += e.Message + "\n" }
	if _, err := r.Run(t.Context(), day2.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return notes
}

func management(t *testing.T, set string) pinning.Workloads {
	t.Helper()
	cpus, err := pinning.ParseCPUSet(set)
	if err != nil {
		t.Fatal(err)
	}
	return pinning.Workloads{pinning.Management: cpus}
}

func expectStatusAt(t *testing.T, h *hostdir.Host, phase pivot.Phase) {
	t.Helper()
	m := newMachine(t, h)
	if s, err := m.Status(t.Context()); err != nil || s.Phase != phase || len(s.Notes) > 0 {
		t.Errorf("status %s with the notes %q, %v, want plain %s", s.Phase, s.Notes, err, phase)
	}
}

// expectUndone checks that the status is undone: neither the running system nor the next
// boot is the target. why must be in its notes.
func expectUndone(t *testing.T, h *hostdir.Host, why string) {
	t.Helper()
	m := newMachine(t, h)
	s, err := m.Status(t.Context())
	if err != nil || s.Phase != pivot.PhaseUndone || !strings.Contains(strings.Join(s.Notes, "\n"), why) {
		t.Errorf("status %s with the notes %q, %v; want undone with %q", s.Phase, s.Notes, err, why)
	}
}

func rpmOstree(t *testing.T, h *hostdir.Host, args ...string) {
	t.Helper()
	if _, err := h.Run(t.Context(), append([]string{"rpm-ostree"}, args...)...); err != nil {
		t.Fatal(err)
	}
}

// TestCommittedTakenAway: the committed deployment is removed before the reboot.
func TestCommittedTakenAway(t *testing.T) {
	h := committed(t)
	rpmOstree(t, h, "cleanup", "-p")
	expectUndone(t, h, "what was committed is gone, and the next boot is the running system again: image: booted")
	moveByHand(t, h)
	expectStatusAt(t, h, pivot.PhaseCommitted)
	h.Boot()
	expectStatusAt(t, h, pivot.PhaseDone)
}

// TestChangedAfterTheBoot: a boot that came up with what was committed is done, also if something is changed later;
// pivot verify says what. A boot with another /etc than the committed one is undone.
func TestChangedAfterTheBoot(t *testing.T) {
	const file = `"storage":{"files":[{"path":"/etc/ours/file","contents":{"source":"data:,one"}}]}`
	h := hostdir.New(t)
	a := day2.Apply{Machine: newMachine(t, h), Config: day2.Config{File: "mc.json", Data: clusterConfig("rendered-1", h.Image, `"four=4"`, file)}}
	if changed, err := a.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
		t.Fatal(changed, err)
	}
	h.Boot()
	expectStatusAt(t, h, pivot.PhaseDone)
	h.Write("/etc/ours/file", []byte("two"))
	s, err := newMachine(t, h).Status(t.Context())
	want := []string{"this boot came up with what was committed, and has been changed since: file /etc/ours/file: differs"}
	if err != nil || s.Phase != pivot.PhaseDone || !slices.Equal(s.Notes, want) {
		t.Errorf("status %s with the notes %q, %v", s.Phase, s.Notes, err)
	}
	if err := os.Remove(h.Path(machineconfig.RecordPath)); err != nil {
		t.Fatal(err)
	}
	expectUndone(t, h, "this boot came up without what was committed: file /etc/ours/file: differs; file "+machineconfig.RecordPath+": missing")
}

// TestStagedOnTop: what rpm-ostree stages on top of a pivot by hand gets the
// running /etc. The status says so before the reboot, and names what is missing after it.
func TestStagedOnTop(t *testing.T) {
	h := committed(t)
	rpmOstree(t, h, "kargs", "--append=foo=1")
	staged := h.Commit + ".1, which somebody staged on top of what was committed, with the /etc that runs: file " + pinning.DropInPath + ": missing"
	expectUndone(t, h, staged)
	m := newMachine(t, h)
	if s, err := m.Status(t.Context()); err != nil || s.Pending == nil || !s.Pending.Staged || !slices.Contains(s.Pending.Options, "foo=1") {
		t.Errorf("pending %+v, %v", s.Pending, err)
	}
	r := day2.Rebase{Machine: newMachine(t, h), Image: h.Image}
	if plan, err := r.Plan(t.Context(), day2.RunOptions{}); err != nil || !strings.Contains(strings.Join(plan.Notes, "\n"), h.Commit+".1 is staged and will be replaced") {
		t.Errorf("the plan's notes are %q, %v", plan.Notes, err)
	}

	h.Shutdown()
	if h.Version() != "B.2" || !strings.Contains(h.Options(), " nosmt foo=1 ") || h.Read(pinning.DropInPath) != nil {
		t.Fatalf("the machine is not as a real one was: version %s, options %q", h.Version(), h.Options())
	}
	expectUndone(t, h, "this boot came up without what was committed: file "+pinning.DropInPath+": missing; file "+pinning.KubeletPath+": missing")
	moveByHand(t, h)
	expectStatusAt(t, h, pivot.PhaseCommitted)
	h.Boot()
	expectStatusAt(t, h, pivot.PhaseDone)
	if !strings.Contains(h.Options(), " nosmt foo=1 ") {
		t.Errorf("options %q", h.Options())
	}
}

// TestStagedOnTopOfAFirstBoot: the same between a first boot's commit and its
// reboot, which an inhibitor can delay. The next boot's proof names what is
// missing, and the next attempt repairs it.
func TestStagedOnTopOfAFirstBoot(t *testing.T) {
	h := newHost(t)
	h.InstallRpmOstree(rpmostree.Control{})
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	rpmOstree(t, h, "kargs", "--append=foo=1")
	h.Shutdown()
	notes, err := bootWith(t, h, "auto")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"attempt 2 of 3", "file " + pinning.DropInPath + ": missing", "file " + pinning.KubeletPath + ": missing", "staged on top"} {
		if !strings.Contains(notes, want) {
			t.Errorf("it does not say %q: %s", want, notes)
		}
	}
	h.Boot()
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	expectClosed(t, h)
	expectStatus(t, h)
	if h.Reboots != 2 || !strings.Contains(h.Options(), " foo=1 ") || h.Read(pinning.DropInPath) == nil {
		t.Errorf("%d reboots, options %q", h.Reboots, h.Options())
	}
}

// TestStagedOnTopInTheSameBoot: a first boot that is started again before its reboot
// does not reboot into what was staged in between.
func TestStagedOnTopInTheSameBoot(t *testing.T) {
	h := newHost(t)
	h.InstallRpmOstree(rpmostree.Control{})
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	rpmOstree(t, h, "kargs", "--append=foo=1")
	notes, err := bootWith(t, h, "auto")
	if err != nil || !strings.Contains(notes, h.Commit+".1 is staged and will be replaced") || strings.Contains(notes, "attempt ") { // no boot came up without it
		t.Errorf("%v; it says: %s", err, notes)
	}
	h.Shutdown()
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	expectNew(t, h)
	expectClosed(t, h)
}

// TestNextStep: the status says what a person has to do in each phase, and only where the machine does not go on by
// itself.
func TestNextStep(t *testing.T) {
	h := newHost(t)
	expect := func(when string, phase pivot.Phase, next string) {
		t.Helper()
		s, err := newMachine(t, h).Status(t.Context())
		if err != nil || s.Phase != phase || s.Next != next {
			t.Errorf("%s: phase %s, next %q, want %q (%v)", when, s.Phase, s.Next, next, err)
		}
	}
	expect("before it", pivot.PhaseIdle, "")
	must(t, run(t, h, firstboot.FirstBoot{NoReboot: true}))
	expect("after the commit", pivot.PhaseCommitted, "systemctl reboot")
	h.Write("/run/pivot/wanted.json", []byte(`{"format":1,"node":"n","config":"c","state":"Working","step":"reboot","since":"2026-01-02T03:04:05Z"}`))
	expect("of a node", pivot.PhaseCommitted, "")
	h.Boot()
	must(t, boot(t, h))
	expect("proven", pivot.PhaseDone, "")
	h.BootEntry(1)
	must(t, boot(t, h))
	expect("taken back", pivot.PhaseUndone, "pivot firstboot --again; or boot the other deployment, if it is still there")
	h.Boot()
	r := day2.Rebase{Machine: newMachine(t, h), Append: []string{"a=1"}}
	_, err := r.Run(t.Context(), day2.RunOptions{})
	must(t, err)
	expect("by hand", pivot.PhaseCommitted, "systemctl reboot")
	must(t, h.Undeploy(0))
	expect("gone", pivot.PhaseUndone, "run the same command again")
}
