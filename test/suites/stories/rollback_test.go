package stories_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/projection"
	"machine-pivot/internal/settings"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/rpmostree"
)

// arrived returns a machine after its first boot.
func arrived(t *testing.T) *hostdir.Host {
	t.Helper()
	h := newHost(t)
	finish(t, h)
	return h
}

// finish runs a first boot to its end.
func finish(t *testing.T, h *hostdir.Host) {
	t.Helper()
	for range 2 {
		if err := boot(t, h); err != nil {
			t.Fatal(err)
		}
		if h.Version() == "A.1" {
			h.Boot()
		}
	}
	expectNew(t, h)
	expectClosed(t, h)
}

// rollback rolls back with a libostree that can do it.
func rollback(t *testing.T, h *hostdir.Host) error {
	t.Helper()
	if h.Ostree.Version == "" {
		h.Ostree.Version = "2023.6"
		defer func() { h.Ostree.Version = "" }()
	}
	r := day2.Rollback{Machine: newMachine(t, h)}
	return r.Run(t.Context())
}

// expectStatus checks that the booted system proves the last transaction.
func expectStatus(t *testing.T, h *hostdir.Host) {
	t.Helper()
	m := newMachine(t, h)
	if s, err := m.Status(t.Context()); err != nil || s.Phase != pivot.PhaseDone {
		t.Errorf("status %+v, %v", s, err)
	}
	if differences, err := m.Verify(t.Context()); err != nil || len(differences) > 0 {
		t.Errorf("verify: %q, %v", differences, err)
	}
}

// TestRollback (P26): back to the complete old system, and forward again.
func TestRollback(t *testing.T) {
	h := arrived(t)
	if err := rollback(t, h); err != nil {
		t.Fatal(err)
	}
	expectNew(t, h) // the running system does not change
	expectStatusAt(t, h, pivot.PhaseCommitted)
	h.Boot()
	expectOld(t, h)
	expectStatus(t, h)
	if err := boot(t, h); err != nil || h.Reboots != 1 {
		t.Fatalf("the old system pivots forward again: %v, %d reboots", err, h.Reboots)
	}
	if err := rollback(t, h); err != nil {
		t.Fatal(err)
	}
	h.Boot()
	expectNew(t, h)
	expectStatus(t, h)
}

// TestRollbackSays: a rollback makes no deployment, and does not say so.
func TestRollbackSays(t *testing.T) {
	h := arrived(t)
	h.Ostree.Version = "2023.6" // it can set the default
	all, err := h.Sysroot().Deployments()
	if err != nil {
		t.Fatal(err)
	}
	r := day2.Rollback{Machine: newMachine(t, h)}
	var says []string
	r.Progress.Emit = func(e pivot.Event) { says = append(says, e.Message) }
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(says, "\n")
	for _, want := range []string{"checking that deployment " + all[1].ID() + " can be the next boot", "making deployment " + all[1].ID() + " the next boot"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "preparing") || strings.Contains(text, "committing") {
		t.Errorf("it says\n%s", text)
	}
}

// TestRollbackBeforeTheReboot takes back a pending commit: the running system stays.
func TestRollbackBeforeTheReboot(t *testing.T) {
	h := hostdir.New(t)
	r := day2.Rebase{Machine: newMachine(t, h), Image: h.Image}
	if _, err := r.Run(t.Context(), day2.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := rollback(t, h); err != nil {
		t.Fatal(err)
	}
	expectStatus(t, h)
	h.Boot()
	expectOld(t, h)
}

func TestRollbackInterrupted(t *testing.T) {
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after %v", after), func(t *testing.T) {
			h := arrived(t)
			h.Ostree.Fail = func(_ int, now bool) error {
				if now == after {
					return errors.New("power cut")
				}
				return nil
			}
			// What ostree says after it has made the change is not believed: the boot entries are read.
			if err := rollback(t, h); (err == nil) != after {
				t.Fatalf("the rollback ends with %v", err)
			}
			h.Ostree.Fail = nil
			h.Boot()
			if h.Version() == "A.1" {
				expectOld(t, h)
			} else {
				expectNew(t, h)
			}
		})
	}
}

// TestRollbackByRpmOstree: rpm-ostree does the rollback if libostree has no command for it. It
// succeeds with a read-only /tmp, and if its client fails when the work is done.
func TestRollbackByRpmOstree(t *testing.T) {
	for _, faults := range [][]rpmostree.Fault{
		nil,
		{{Verb: "rollback", At: "end", Do: "fail", Message: "Failed to load package list: something with the packages"}},
	} {
		h := arrived(t)
		h.InstallRpmOstree(rpmostree.Control{Faults: faults})
		h.ReadOnlyTmp()
		asked := false
		h.Ostree.Fail = func(int, bool) error {
			if asked {
				return nil
			}
			asked = true
			return errors.New("error: Unknown command 'set-default'")
		}
		if err := rollback(t, h); err != nil {
			t.Fatal(err)
		}
		if verbs := verbsOf(t, h); !slices.Equal(verbs, []string{"rollback"}) {
			t.Errorf("rpm-ostree was asked to %q", verbs)
		}
		h.Boot()
		expectOld(t, h)
	}
}

func TestRollbackRefusals(t *testing.T) {
	h := hostdir.New(t)
	if err := rollback(t, h); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "no deployment but the running one") {
		t.Errorf("with one deployment: %v", err)
	}
	h = arrived(t)
	h.Ostree.Fail = func(int, bool) error { return errors.New("error: Unknown command 'set-default'") }
	h.Ostree.Programs = map[string]string{"rpm-ostree": ""} // does nothing
	if err := rollback(t, h); err == nil || !strings.Contains(err.Error(), "is not the default") {
		t.Errorf("a rollback that is none: %v", err)
	}
	if _, err := os.Stat(h.Path(pinning.DropInPath)); err != nil {
		t.Error(err)
	}
}

// TestRollbackToRecord: after applying A and then B, a rollback is judged by all of the MachineConfig A that the
// previous deployment records. It can be repaired from there.
func TestRollbackToRecord(t *testing.T) {
	h, _ := withUnits(t)
	const a = `
  kernelArguments: [a=1]
  config:
    ignition: {version: 3.4.0}
    storage:
      files: [{path: /etc/of-a, contents: {source: "data:,a"}}, {path: /etc/changes, contents: {source: "data:,a"}}]
    systemd:
      units: [{name: mine.service, enabled: true, contents: "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}]
`
	const b = `
  kernelArguments: [b=1]
  config:
    ignition: {version: 3.4.0}
    storage: {files: [{path: /etc/changes, contents: {source: "data:,b"}}]}
`
	for _, spec := range []string{a, b} {
		if changed, _, err := apply(t, h, spec); err != nil || !changed {
			t.Fatalf("changed %v, %v", changed, err)
		}
	}
	must(t, rollback(t, h))
	expectStatusAt(t, h, pivot.PhaseCommitted)
	h.Boot()
	expectStatus(t, h)
	link := "/etc/systemd/system/multi-user.target.wants/mine.service"
	for _, c := range []struct {
		change func() error
		want   string
	}{
		{func() error { return os.WriteFile(h.Path("/etc/of-a"), []byte("drifted"), 0o644) }, "file /etc/of-a: differs"},
		{func() error { return os.Remove(h.Path(link)) }, "link " + link + ": missing"},
		{func() error { return os.Remove(h.Path("/etc/changes")) }, "file /etc/changes: missing"},
	} {
		must(t, c.change())
		if got := verify(t, h); !strings.Contains(got, c.want) {
			t.Errorf("verify says %q, want %q", got, c.want)
		}
	}
	repair := day2.Apply{Machine: newMachine(t, h), Repair: true, When: day2.RebootLater}
	changed, err := repair.Run(t.Context(), day2.RunOptions{})
	if err != nil || !changed {
		t.Fatalf("repair: changed %v, %v", changed, err)
	}
	h.Boot()
	if got := verify(t, h); got != "" || string(h.Read("/etc/of-a")) != "a" {
		t.Errorf("after the repair: %q", got)
	}
	if options := h.Options(); !strings.Contains(options, "a=1") || strings.Contains(options, "b=1") {
		t.Errorf("options %q", options)
	}
}

// TestRollbackToArguments: the record's kernel arguments are expected, except for those that
// the deployment was not made with, as after a change by hand.
func TestRollbackToArguments(t *testing.T) {
	h := hostdir.New(t)
	if _, _, err := apply(t, h, "  kernelArguments: [a=1, gone=1]\n"); err != nil {
		t.Fatal(err)
	}
	byHand := day2.Rebase{Machine: newMachine(t, h), Append: []string{"hand=1"}, Delete: []string{"gone=1"}}
	if _, err := byHand.Run(t.Context(), day2.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	h.Boot()
	if _, _, err := apply(t, h, "  kernelArguments: [b=1]\n"); err != nil {
		t.Fatal(err)
	}
	must(t, rollback(t, h))
	h.Boot()
	expectStatus(t, h)
	journal, err := pivot.JournalIn(h.Root).Load()
	must(t, err)
	if !slices.Contains(journal.Target.Kargs.New, "a=1") || slices.Contains(journal.Target.Kargs.New, "gone=1") || !slices.Contains(journal.Target.Kargs.Old, "b=1") {
		t.Errorf("expected are %+v", journal.Target.Kargs)
	}
}

// TestRollbackOfGroups: the arguments of the previous deployment are expected by whole groups: the instances of
// a key in their order, and pools of huge pages with their numbers. The rollback is proven, and what is lost is found.
func TestRollbackOfGroups(t *testing.T) {
	for name, c := range map[string]struct{ first, then, remove, lost string }{
		"consoles":        {"console=tty0 console=ttyS0", "", "console=tty0", "console=tty0"},
		"values of a key": {"loglevel=7 loglevel=3", "", "loglevel=7", "loglevel=7"},
		"another pool":    {"hugepagesz=2M hugepages=4", "hugepagesz=1G hugepages=4", "hugepagesz=2M hugepages=4", "hugepagesz=2M hugepages=4"},
		"one more pool":   {"hugepagesz=1G hugepages=4", "hugepagesz=2M hugepages=8", "", "hugepagesz=1G hugepages=4"},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostdir.New(t)
			byHand := func(append, remove string) {
				t.Helper()
				r := day2.Rebase{Machine: newMachine(t, h), Append: kargs.Split(append), Delete: kargs.Split(remove)}
				if _, err := r.Run(t.Context(), day2.RunOptions{}); err != nil {
					t.Fatal(err)
				}
				h.Boot()
				expectStatus(t, h)
			}
			byHand(c.first, "")
			want := withoutOSTree(kargs.Split(h.Options()))
			byHand(c.then, c.remove)
			must(t, rollback(t, h))
			h.Boot()
			expectStatus(t, h)
			if got := withoutOSTree(kargs.Split(h.Options())); got != want {
				t.Errorf("options %q, want %q", got, want)
			}
			if name == "one more pool" {
				return // both systems have it
			}
			shell(t, h, "sed -i 's/ "+c.lost+"//' boot/loader/entries/*.conf")
			if got := verify(t, h); !strings.Contains(got, kargs.Split(c.lost)[0]+": not in effect") {
				t.Errorf("without %s: %q", c.lost, got)
			}
		})
	}
}

// TestRollbackRepairsArguments: the previous deployment has a kernel argument that the one after
// it lacks and that its record does not name, as one that its image has brought. It is verified,
// and restored like what the record asks for.
func TestRollbackRepairsArguments(t *testing.T) {
	h := hostdir.New(t)
	const spec = "  kernelArguments: [a=1]\n  config:\n    ignition: {version: 3.4.0}\n    storage: {files: [{path: /etc/of-a, contents: {source: \"data:,a\"}}]}\n"
	if _, _, err := apply(t, h, spec); err != nil {
		t.Fatal(err)
	}
	byHand := func(append, remove []string) {
		t.Helper()
		rebase := day2.Rebase{Machine: newMachine(t, h), Append: append, Delete: remove}
		if _, err := rebase.Run(t.Context(), day2.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		h.Boot()
	}
	byHand([]string{"more=1"}, nil)
	byHand([]string{"b=1"}, []string{"more=1"})
	must(t, rollback(t, h))
	h.Boot()
	expectStatus(t, h)
	must(t, os.WriteFile(h.Path("/etc/of-a"), []byte("drifted"), 0o644))
	repair := day2.Apply{Machine: newMachine(t, h), Repair: true, When: day2.RebootLater}
	if changed, err := repair.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
		t.Fatalf("repair: changed %v, %v", changed, err)
	}
	h.Boot()
	expectStatus(t, h)
	options := h.Options()
	if string(h.Read("/etc/of-a")) != "a" || !strings.Contains(options, "a=1") || !strings.Contains(options, "more=1") || strings.Contains(options, "b=1") {
		t.Errorf("after the repair: %q, options %q", h.Read("/etc/of-a"), options)
	}
}

// TestDefaultNamesStaged (P92): libostree drops a deployment that is staged and locked when the default changes. So it is
// named before, by a rollback and by the end of a trial, and not by a rollback that leaves the default as it is.
func TestDefaultNamesStaged(t *testing.T) {
	h := newTried(t)
	h.oneShot()
	must(t, h.try(tenMinutes))
	h.stage("--lock-finalization")
	must(t, h.rollback()) // A is the default already
	staged, err := h.Sysroot().Staged()
	if err != nil || staged == nil || strings.Contains(h.notes, "will be dropped") {
		t.Fatalf("staged %v, %v, notes %s", staged, err, h.notes)
	}
	_, err = h.Run(t.Context(), "ostree", "admin", "undeploy", "0")
	must(t, err)
	must(t, h.try(tenMinutes))
	h.enter()
	for _, change := range []func() error{h.confirm, h.rollback} {
		h.notes = ""
		h.stage("--lock-finalization")
		if staged, err = h.Sysroot().Staged(); err != nil || staged == nil {
			t.Fatal(staged, err)
		}
		must(t, change())
		if !strings.Contains(h.notes, "deployment "+staged.Target.ID()+" is staged, by another program, and will be dropped") {
			t.Errorf("notes %s", h.notes)
		}
	}
}

// TestRollbackToPinning: after a rollback, the machine is judged by the CPU partitioning that the deployment itself
// has, whatever its files are called, also where no MachineConfig is recorded.
func TestRollbackToPinning(t *testing.T) {
	for _, name := range []string{pinning.DropInPath, pinning.DropInDir + "/60-site.conf", pinning.DropInDir + "/site/own.conf"} {
		t.Run(name, func(t *testing.T) {
			h := hostdir.New(t)
			w := management(t, "0-1")
			h.Write(name, pinning.DropIn(w))
			h.Write(pinning.KubeletPath, pinning.KubeletFile(w))
			r := day2.Rebase{Machine: newMachine(t, h), Append: []string{"a=1"}}
			_, err := r.Run(t.Context(), day2.RunOptions{})
			must(t, err)
			h.Boot()
			must(t, os.Remove(h.Path(name))) // of the deployment that is left
			must(t, os.Remove(h.Path(pinning.KubeletPath)))
			must(t, rollback(t, h))
			h.Boot()
			expectStatus(t, h)
			h.Write(name, append(pinning.DropIn(w), "# changed\n"...))
			if drift := verify(t, h); !strings.Contains(drift, name) {
				t.Errorf("drift %q", drift)
			}
			must(t, os.Remove(h.Path(name)))
			must(t, os.Remove(h.Path(pinning.KubeletPath)))
			if drift := verify(t, h); !strings.Contains(drift, name) || !strings.Contains(drift, pinning.KubeletPath) {
				t.Errorf("without it: drift %q", drift)
			}
		})
	}
}

// TestRollbackBrokenFiles: a rollback is not stopped by files of pivot that it does not need, in the running system or
// in the one that it leads to. It says which cannot be used, and what follows.
func TestRollbackBrokenFiles(t *testing.T) {
	for name, c := range map[string]struct {
		file   string
		before bool // in the previous deployment
		reboot bool
		want   string
	}{
		"settings":                     {file: settings.Path, reboot: true, want: "warning: the reboot is made with reboot-method=reboot: cannot use the settings"},
		"settings that are not needed": {file: settings.Path},
		"policy":                       {file: kargs.PolicyPath},
		"rules":                        {file: disruption.RulesPath},
		"record":                       {file: machineconfig.RecordPath, before: true, want: "warning: after the reboot, pivot verify does not compare everything with the previous deployment"},
		"what the running one carries": {file: projection.ManifestPath},
		"what is carried":              {file: projection.ManifestPath, before: true, want: "warning: after the reboot, pivot verify does not compare everything with the previous deployment"},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostdir.New(t)
			broken := []byte("\x00 no = : such [ thing\n")
			r := day2.Rebase{Machine: newMachine(t, h), Append: []string{"a=1"}}
			_, err := r.Run(t.Context(), day2.RunOptions{})
			must(t, err)
			if c.before {
				h.Write(c.file, broken)
			}
			h.Boot()
			if !c.before {
				h.Write(c.file, broken)
			}
			h.Ostree.Version = "2023.6"
			done := leave(t, h, "", nil, func(ctx context.Context, m *machine.Machine) error {
				return (&day2.Rollback{Machine: m, Reboot: c.reboot}).Run(ctx)
			})
			if c.want == "" && strings.Contains(done.notes, "warning") || !strings.Contains(done.notes, c.want) || (strings.Join(done.ways, "") == "reboot") != c.reboot {
				t.Errorf("ways %q, notes %s", done.ways, done.notes)
			}
			if h.Boot(); strings.Contains(h.Options(), "a=1") {
				t.Errorf("options %s", h.Options())
			}
		})
	}
}

// TestPreviewRollback: where a rollback leads is shown before it, and is where it then leads.
func TestPreviewRollback(t *testing.T) {
	h := newHost(t)
	foresee := func() (string, bool, error) {
		h.Ostree.Version = "2023.6"
		defer func() { h.Ostree.Version = "" }()
		calls, journal := len(h.Ostree.Calls), string(h.Read("/var/lib/pivot/journal.json"))
		r := day2.Rollback{Machine: newMachine(t, h)}
		to, stays, err := r.Preview(t.Context())
		if len(h.Ostree.Calls) != calls || string(h.Read("/var/lib/pivot/journal.json")) != journal {
			t.Errorf("it has changed something: calls %v", h.Ostree.Calls[calls:])
		}
		return to.ID(), stays, err
	}
	if _, _, err := foresee(); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "no deployment but the running one") {
		t.Errorf("with a single deployment: %v", err)
	}
	before, err := h.Systems()
	must(t, err)
	must(t, boot(t, h))
	if to, stays, err := foresee(); err != nil || !stays || to != before.Booted.ID() {
		t.Errorf("after the commit: %s, stays %v, %v", to, stays, err)
	}
	h.Boot()
	must(t, boot(t, h))
	to, stays, err := foresee()
	if err != nil || stays || to != before.Booted.ID() {
		t.Errorf("in the new system: %s, stays %v, %v", to, stays, err)
	}
	must(t, rollback(t, h))
	if after, err := h.Systems(); err != nil || after.Default.ID() != to {
		t.Errorf("the rollback leads to %s (%v), not to %s", after.Default.ID(), err, to)
	}
}
