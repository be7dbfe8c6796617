package stories_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"machine-pivot/day2"
	"machine-pivot/day2/trial"
	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/rpmostree"
)

// makeBootc makes the running system one that bootc manages.
func makeBootc(t *testing.T, h *hostdir.Host) {
	t.Helper()
	h.Write(host.BootcPath, nil)
	must(t, os.MkdirAll(filepath.Join(h.Physical(), "ostree/bootc"), 0o755))
}

// TestHostOfBootc (P93): where bootc manages a machine, kernel arguments of images are applied by default, and
// /run/reboot-required exists as long as the next boot starts another system.
func TestHostOfBootc(t *testing.T) {
	h := hostdir.New(t)
	h.InstallRpmOstree(rpmostree.Control{}) // can roll back
	makeBootc(t, h)
	h.Serve(h.NativeImage(withImageKargs(`kargs = ["image.only=1"]`)))
	required := func(want bool) {
		t.Helper()
		text := string(h.Read("/run/reboot-required"))
		if strings.HasPrefix(text, "pivot: Reboot required for image: sha256:") != want {
			t.Errorf("/run/reboot-required has %q, wanted %v", text, want)
		}
	}
	required(false)
	move := day2.Rebase{Machine: newMachine(t, h), Image: h.Image}
	_, err := move.Run(t.Context(), day2.RunOptions{})
	must(t, err)
	required(true)
	back := day2.Rollback{Machine: newMachine(t, h)}
	must(t, back.Run(t.Context()))
	required(false)
	move = day2.Rebase{Machine: newMachine(t, h), Image: h.Image}
	_, err = move.Run(t.Context(), day2.RunOptions{})
	must(t, err)
	h.Boot()
	if !strings.Contains(h.Options(), "image.only=1") {
		t.Errorf("the options are %s", h.Options())
	}
	expectStatusAt(t, h, pivot.PhaseDone)
	required(false)
	// What the machine is told to do takes precedence over what bootc would do.
	makeBootc(t, h)
	h.Write("/etc/pivot/firstboot.conf", []byte("image-kargs=print\n"))
	m := newMachine(t, h)
	if choice, err := m.ImageKargsChoice(); err != nil || choice.Apply {
		t.Errorf("with image-kargs=print they are applied: %+v, %v", choice, err)
	}
}

// TestTrialTellsBootc (P93): whoever ends a trial has /run/reboot-required say what the next boot is, and nobody says so
// while the trial runs: kured would end it.
func TestTrialTellsBootc(t *testing.T) {
	const theirs = "bootc: Reboot required for image: sha256:0\n"
	for name, end := range map[string]func(h *tried) error{
		"by hand": (*tried).confirm,
		"by itself": func(h *tried) error {
			h.change(func(tried *trial.Trial) { tried.Confirm = trial.ConfirmAuto })
			return h.conduct()
		},
		"in the old system": func(h *tried) error {
			h.BootEntry(0)
			makeBootc(h.t, h.Host)
			h.Write("/run/reboot-required", []byte(theirs))
			return h.conduct()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTried(t)
			h.oneShot()
			must(t, h.try(tenMinutes))
			h.enter()
			makeBootc(t, h.Host)
			stopped, stop := context.WithCancel(t.Context())
			begun := trial.Program{Machine: h.newMachine(), Sleep: func(context.Context, time.Duration) error { stop(); return stopped.Err() }}
			must(t, begun.Run(stopped))
			if text := h.Read("/run/reboot-required"); text != nil {
				t.Errorf("while the trial runs: %s", text)
			}
			h.Write("/run/reboot-required", []byte(theirs))
			must(t, end(h))
			if text := h.Read("/run/reboot-required"); text != nil {
				t.Errorf("afterwards: %s", text)
			}
		})
	}
}

// sourceKeys adds arguments that belong to a program to the running system's boot entry.
func sourceKeys(t *testing.T, h *hostdir.Host, key string) {
	t.Helper()
	all, err := h.Sysroot().Deployments()
	must(t, err)
	file := h.Path("/boot/loader/entries/" + all[0].Entry.File)
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, append(text, key+"\n"...), 0o644))
}

// TestSources (P94): keys of the boot entry name the owners of kernel arguments. They survive a rollback, and a first
// boot in the initramfs, where libostree does not carry them over. Removing such an argument is noted, and so is a key
// without its arguments.
func TestSources(t *testing.T) {
	h := newHost(t)
	h.Ostree.Version = hostdir.LockInState
	const key = "x-options-source-tuned nohz=full keep=1"
	sourceKeys(t, h, key)
	want := ostree.OptionsSource{Name: "tuned", Options: "nohz=full keep=1"}
	entry := func() ostree.BootEntry {
		t.Helper()
		all, err := h.Sysroot().Deployments()
		must(t, err)
		return all[0].Entry
	}
	if notes, err := bootEarly(t, h, &place{}); err != nil || strings.Join(h.Ostree.Calls, " ") != "deploy set-default" {
		t.Fatalf("%v, calls %v:\n%s", err, h.Ostree.Calls, notes)
	}
	if got := entry().Sources; len(got) != 1 || got[0] != want {
		t.Errorf("the new boot entry has the keys %+v, want %+v", got, want)
	}
	h.Boot()
	must(t, boot(t, h))
	expectNew(t, h)
	expectClosed(t, h)
	s, err := newMachine(t, h).Status(t.Context())
	must(t, err)
	if notes := strings.Join(s.Notes, "\n"); !strings.Contains(notes, "kernel arguments of tuned (x-options-source-tuned) are not in the boot entry: nohz=full keep=1") {
		t.Errorf("the notes are %q", s.Notes)
	}
	_, err = (&day2.Rebase{Machine: newMachine(t, h), Append: []string{"nohz=full"}}).Run(t.Context(), day2.RunOptions{})
	must(t, err)
	if got := entry().Sources; len(got) != 1 || got[0] != want {
		t.Errorf("after a change by hand, the boot entry has the keys %+v", got)
	}
}

// TestSourcesKept (P94): with a libostree that carries the keys over, they survive a change by hand, a MachineConfig and
// a rollback.
func TestSourcesKept(t *testing.T) {
	h := hostdir.New(t)
	h.Ostree.Version = hostdir.KeepsKeys
	sourceKeys(t, h, `x-options-source-tuned keep="a b"`)
	expect := func(when string) {
		t.Helper()
		all, err := h.Sysroot().Deployments()
		must(t, err)
		if got := all[0].Entry.Sources; len(got) != 1 || got[0] != (ostree.OptionsSource{Name: "tuned", Options: `keep="a b"`}) {
			t.Errorf("%s: the boot entry has the keys %+v", when, got)
		}
		h.Boot()
		if s, err := newMachine(t, h).Status(t.Context()); err != nil || len(s.Notes) > 0 {
			t.Errorf("%s: notes %q, %v", when, s.Notes, err)
		}
	}
	r := day2.Rebase{Machine: newMachine(t, h), Image: h.Image}
	_, err := r.Run(t.Context(), day2.RunOptions{})
	must(t, err)
	expect("rebase")
	a := day2.Apply{Machine: newMachine(t, h), Config: day2.Config{File: "mc.json", Data: clusterConfig("rendered-1", h.Image, `"four=4"`, `"storage":{}`)}}
	_, err = a.Run(t.Context(), day2.RunOptions{})
	must(t, err)
	expect("apply")
	back := day2.Rollback{Machine: newMachine(t, h)}
	must(t, back.Run(t.Context()))
	expect("rollback")
}

// TestOwnedArgument (P94): a change that removes an argument of a program names that program.
func TestOwnedArgument(t *testing.T) {
	h := hostdir.New(t)
	sourceKeys(t, h, "x-options-source-tuned "+strings.Fields(strings.ReplaceAll(h.Options(), `keep="a b"`, ""))[0]+` keep="a b"`)
	r := day2.Rebase{Machine: newMachine(t, h), Delete: []string{"keep"}}
	plan, err := r.Plan(t.Context(), day2.RunOptions{})
	must(t, err)
	if notes := strings.Join(plan.Notes, "\n"); !strings.Contains(notes, `kernel argument keep="a b" belongs to tuned`) {
		t.Errorf("the notes are %q", plan.Notes)
	}
}
