package stories_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/day2/trial"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/rpmostree"
)

// comingEntries are boot entries that kexec cannot start, by what is known of them before the commit.
func comingEntries() map[string]struct {
	make func(*tried)
	why  string
} {
	return map[string]struct {
		make func(*tried)
		why  string
	}{
		"FIPS": {func(h *tried) { h.addOption("fips=1") }, "fips=1"},
		"a variable of GRUB by the image": {func(h *tried) {
			h.bring(map[string]string{"/usr/lib/bootc/kargs.d/10-test.toml": `kargs = ["x=$y"]`})
			h.set("image-kargs=apply")
		}, "x=$y"},
		"a variable of GRUB": {func(h *tried) { h.addOption("$tuned_params") }, "$tuned_params"},
		"device trees of the image": {func(h *tried) {
			h.bring(map[string]string{"/usr/lib/modules/6.1/dtb/a.dtb": "tree"})
		}, "fdtdir"},
		"one device tree": {func(h *tried) {
			h.bring(map[string]string{"/usr/lib/modules/6.1/devicetree": "tree"})
		}, "devicetree"},
		"files for the initramfs": {func(h *tried) {
			h.InstallRpmOstree(rpmostree.Control{Version: "2026.2"})
			h.Write("/etc/vconsole.conf", []byte("KEYMAP=de\n"))
			h.SetOrigin(string(h.origin()) + "[rpmostree]\ninitramfs-etc=/etc/vconsole.conf;\n")
		}, "more than one initramfs"},
	}
}

// bring adds files to the next system, and asks for it.
func (h *tried) bring(files map[string]string) {
	h.t.Helper()
	h.PutIntoNext(files)
	serve(h.t, h.Host, h.NativeImage())
}

// origin returns the origin of the running deployment.
func (h *tried) origin() []byte {
	h.t.Helper()
	d, err := h.Sysroot().Booted()
	must(h.t, err)
	text, err := os.ReadFile(d.Path + ".origin")
	must(h.t, err)
	return text
}

// addOption adds a kernel argument to the boot entry of the running system, and starts it again.
func (h *tried) addOption(arg string) {
	h.t.Helper()
	h.editEntry("options ", " "+arg)
	h.Boot()
}

// addInitramfs gives the running system a second initramfs, and starts it again.
func (h *tried) addInitramfs() (content string) {
	h.t.Helper()
	content = "files of the machine"
	overlay := fmt.Sprintf("/ostree/initramfs-overlays/%x.img", sha256.Sum256([]byte(content)))
	h.Write("/boot"+overlay, []byte(content))
	h.editEntry("initrd ", "\ninitrd "+overlay)
	h.Boot()
	return content
}

// editEntry adds text to the line of the default boot entry that begins with a key.
func (h *tried) editEntry(key, add string) {
	h.t.Helper()
	h.editEntryOf(func(i int, _ ostree.Deployment) bool { return i == 0 }, key, add)
}

// editNew is editEntry for the entry of the new system.
func (h *tried) editNew(key, add string) {
	h.t.Helper()
	h.editEntryOf(func(_ int, d ostree.Deployment) bool { return d.Checksum != h.old }, key, add)
}

func (h *tried) editEntryOf(which func(int, ostree.Deployment) bool, key, add string) {
	h.t.Helper()
	all, err := h.Sysroot().Deployments()
	must(h.t, err)
	at := 0
	for !which(at, all[at]) {
		at++
	}
	file := filepath.Join("/boot/loader/entries", all[at].Entry.File)
	lines := strings.Split(string(h.Read(file)), "\n")
	i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, key) })
	lines[i] += add
	h.Write(file, []byte(strings.Join(lines, "\n")))
}

// set adds a line to the settings.
func (h *tried) set(line string) {
	h.Write(settings.Path, append(h.Read(settings.Path), line+"\n"...))
}

// newKexecOnly returns a machine that can enter a system only once by kexec: its boot loader cannot.
func newKexecOnly(t *testing.T) *tried {
	t.Helper()
	h := newGuarded(t)
	h.Write(loaderFeatures, nil)
	h.set("reboot-method=kexec")
	return h
}

// bootKexecOnly is bootGuarded with the engine that fits the machine, for the next system as it is now.
func (h *tried) bootKexecOnly() error {
	h.t.Helper()
	h.asked, h.notes = nil, ""
	b := firstboot.FirstBoot{Machine: h.newMachine(), File: firstboot.EncapsulatedPath}
	must(h.t, b.UseEngine("auto"))
	ctx := stoppedByReboot(h.t, b.Machine, h.Host)
	return b.Run(ctx)
}

const (
	noFallback = "no fallback, so if the new kernel is dead"
)

// TestOnceByKexec: a system is committed to be entered once by kexec only if its boot entry, as far as it is known, is
// one that kexec can start. Otherwise the commit is as without a fallback, and a note before it says so.
func TestOnceByKexec(t *testing.T) {
	for name, c := range comingEntries() {
		t.Run(name, func(t *testing.T) {
			h := newKexecOnly(t)
			c.make(h)
			must(t, h.bootKexecOnly())
			h.expect("B A", pivot.PhaseCommitted, false)
			if len(h.Kexecs) != 0 || h.Reboots != 1 || !strings.Contains(h.notes, "without a fallback: ") && !strings.Contains(h.notes, noFallback) || !strings.Contains(h.notes, c.why) {
				t.Errorf("kexec %+v, %d reboots, notes %s", h.Kexecs, h.Reboots, h.notes)
			}
			h.Boot()
			must(t, h.bootKexecOnly())
			h.expect("B A", pivot.PhaseDone, false)
		})
	}
}

// rebaseOnce changes the machine by hand with its reboot, up to that: on trial if terms says so, else as the settings
// say. The first boot is over.
func (h *tried) rebaseOnce(terms *trial.Terms, ask func(*day2.Rebase)) {
	h.t.Helper()
	must(h.t, h.tryRebaseOnce(terms, ask))
}

func (h *tried) tryRebaseOnce(terms *trial.Terms, ask func(*day2.Rebase)) error {
	h.t.Helper()
	h.asked, h.notes = nil, ""
	must(h.t, os.RemoveAll(h.Path(firstboot.EncapsulatedPath)))
	r := day2.Rebase{Machine: h.newMachine(), Image: h.Image, Append: []string{"new=1"}, Reboot: true}
	if terms != nil {
		trying(r.Machine, *terms)
	}
	must(h.t, r.UseEngine("auto"))
	if ask != nil {
		ask(&r)
	}
	_, err := r.Run(stoppedByReboot(h.t, r.Machine, h.Host), day2.RunOptions{})
	return err
}

const promised = "the new system is booted once, by kexec: if it does not come up, the next power cycle boots the old one"

// TestOnceByKexecByHand: a change by hand that the setting has fall back is judged alike. A trial that the command asks
// for continues, and a note before its commit names what it does not cover.
func TestOnceByKexecByHand(t *testing.T) {
	for name, c := range comingEntries() {
		t.Run(name, func(t *testing.T) {
			h := newKexecOnly(t)
			c.make(h)
			h.rebaseOnce(nil, nil)
			h.expect("B A", pivot.PhaseCommitted, false)
			if len(h.Kexecs) != 0 || !strings.Contains(h.notes, noFallback) && !strings.Contains(h.notes, "without a fallback: ") || !strings.Contains(h.notes, c.why) {
				t.Errorf("kexec %+v, notes %s", h.Kexecs, h.notes)
			}

			h = newKexecOnly(t)
			c.make(h)
			h.rebaseOnce(&tenMinutes, nil)
			h.expect("B A", pivot.PhaseCommitted, true)
			warned := strings.LastIndex(h.notes, "somebody must choose the old system in the boot menu: no boot loader is known here that starts an entry once")
			if len(h.Kexecs) != 0 || warned < strings.LastIndex(h.notes, promised) || !strings.Contains(h.notes[max(warned, 0):], c.why) || strings.Contains(h.notes[max(warned, 0):], "with --reboot-method=kexec") {
				t.Errorf("kexec %+v, notes %s", h.Kexecs, h.notes)
			}
		})
	}
}

// TestOnceByTheNextWay: where kexec cannot start the coming entry and the boot loader can start it once, a note before
// the commit says so, and that happens after it. A second try says and does the same.
func TestOnceByTheNextWay(t *testing.T) {
	for name, c := range comingEntries() {
		t.Run(name, func(t *testing.T) {
			h := newKexecOnly(t)
			h.oneShot()
			c.make(h)
			for reboots := 1; reboots <= 2; reboots++ {
				h.rebaseOnce(nil, nil)
				h.expect("A B", pivot.PhaseCommitted, true)
				h.expectOnce(reboots)
				by := strings.LastIndex(h.notes, "the new system is booted once, by a one-shot entry")
				if len(h.Kexecs) != 0 || by <= strings.LastIndex(h.notes, promised) || strings.Contains(h.notes, "fallback: ") {
					t.Errorf("kexec %+v, notes %s", h.Kexecs, h.notes)
				}
				h.Boot() // it did not come up
			}
		})
	}
}

// TestOnceByKexecAfterAll: what the running system's entry has is no reason if the coming one does not have it; nor
// is what GRUB's variable for Ignition stands for before the commit.
func TestOnceByKexecAfterAll(t *testing.T) {
	for name, c := range map[string]struct {
		make func(*tried)
		ask  func(*day2.Rebase)
	}{
		"FIPS goes":              {func(h *tried) { h.addOption("fips=1") }, func(r *day2.Rebase) { r.Delete = []string{"fips=1"} }},
		"a variable goes":        {func(h *tried) { h.addOption("$tuned_params") }, func(r *day2.Rebase) { r.Delete = []string{"$tuned_params"} }},
		"FIPS off":               {func(h *tried) { h.addOption("fips=0") }, nil},
		"after --":               {func(h *tried) { h.addOption("-- fips=1") }, nil},
		"the tree of the old":    {func(h *tried) { h.editEntry("linux ", "\ndevicetree /a.dtb"); h.Boot() }, nil},
		"an initramfs more":      {func(h *tried) { h.addInitramfs() }, nil},
		"no files by rpm-ostree": {func(h *tried) { h.SetOrigin(string(h.origin()) + "[rpmostree]\ninitramfs-etc=\n") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newKexecOnly(t)
			c.make(h)
			h.rebaseOnce(nil, c.ask)
			h.expect("A B", pivot.PhaseCommitted, true)
			if len(h.Kexecs) != 1 || !strings.Contains(h.notes, promised) || strings.Contains(h.notes, "fallback: ") {
				t.Errorf("kexec %+v, notes %s", h.Kexecs, h.notes)
			}
		})
	}
}

// TestOnceSameImage: if the image stays, the coming entry has the device trees and the initramfs files of the
// running one. No others are added: that is done where rpm-ostree makes the deployment, and this is libostree then.
func TestOnceSameImage(t *testing.T) {
	for name, c := range map[string]struct {
		make  func(*tried)
		kexec bool
	}{
		"device trees":            {func(h *tried) { h.editEntry("linux ", "\nfdtdir /dtb"); h.Boot() }, false},
		"no device trees":         {func(*tried) {}, true},
		"an initramfs more":       {func(h *tried) { h.addInitramfs() }, false},
		"files for the initramfs": {func(h *tried) { h.SetOrigin(string(h.origin()) + "[rpmostree]\ninitramfs-etc=/etc/a;\n") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newKexecOnly(t)
			c.make(h)
			h.rebaseOnce(nil, func(r *day2.Rebase) { r.Image = "" })
			h.expect("A A", pivot.PhaseCommitted, c.kexec)
			if len(h.Kexecs) != 0 != c.kexec || strings.Contains(h.notes, promised) != c.kexec || strings.Contains(h.notes, noFallback) == c.kexec {
				t.Errorf("kexec %+v, notes %s", h.Kexecs, h.notes)
			}
		})
	}
}

// TestIgnitionBeforeTheCommit: as long as Ignition's stamp is there, kexec is promised, since the stamp is removed
// before the reboot. If it is still there then, the machine is not rebooted in any way.
func TestIgnitionBeforeTheCommit(t *testing.T) {
	const stamp = "/boot/ignition.firstboot"
	for name, gone := range map[string]bool{"gone by then": true, "still there": false} {
		t.Run(name, func(t *testing.T) {
			h := newKexecOnly(t)
			h.Write(stamp, nil)
			err := h.tryRebaseOnce(nil, func(r *day2.Rebase) {
				emit := r.Progress.Emit
				r.Progress.Emit = func(e pivot.Event) {
					emit(e)
					if gone && e.Kind == pivot.EventBegan && e.Step == pivot.StepCommit {
						must(t, os.Remove(h.Path(stamp)))
					}
				}
			})
			if len(h.Kexecs) == 1 != gone || h.Reboots != 0 || !strings.Contains(h.notes, promised) {
				t.Errorf("kexec %+v, %d reboots, notes %s", h.Kexecs, h.Reboots, h.notes)
			}
			if (err == nil) != gone || err != nil && (fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), stamp)) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// TestForeseenByKexec: also without a trial, the notes about the way before the commit follow from the coming entry: in
// a plan, a change, and a rollback to an existing entry.
func TestForeseenByKexec(t *testing.T) {
	const why = "not by kexec, because boot entry "
	h := newTried(t)
	h.Write(settings.Path, []byte("reboot-method=kexec\n"))
	h.addOption("fips=1")
	r := day2.Rebase{Machine: h.newMachine(), Image: h.Image, Append: []string{"new=1"}}
	plan, err := r.Plan(t.Context(), day2.RunOptions{})
	must(t, err)
	if notes := strings.Join(plan.Notes, "; "); !strings.Contains(notes, why+"to come has fips=1") {
		t.Errorf("the plan's notes: %s", notes)
	}
	h.rebaseOnce(nil, func(r *day2.Rebase) { r.Delete = []string{"fips=1"} })
	if strings.Contains(h.notes, "not by kexec") || len(h.Kexecs) != 1 {
		t.Errorf("kexec %+v, notes %s", h.Kexecs, h.notes)
	}
	h.Boot()
	h.notes = ""
	back := day2.Rollback{Machine: h.newMachine(), Reboot: true}
	must(t, back.Run(stoppedByReboot(t, back.Machine, h.Host)))
	if !strings.Contains(h.notes, why) || strings.Contains(h.notes, "to come") || !strings.Contains(h.notes, "fips=1") || h.Reboots != 1 {
		t.Errorf("%d reboots, notes %s", h.Reboots, h.notes)
	}
}

// TestPlanOnceByKexec: a plan foresees no fallback that its run would not have. Kexec is the only way here to enter a
// system once: it excludes ways that keep the kernel only if it can start the coming entry.
func TestPlanOnceByKexec(t *testing.T) {
	const excluded = "because the new system is entered only once"
	for name, able := range map[string]bool{"it can": true, "it cannot": false} {
		t.Run(name, func(t *testing.T) {
			h := newKexecOnly(t)
			if !able {
				h.addOption("fips=1")
			}
			m := h.newMachine()
			m.RebootMethod = settings.RebootAuto
			b := firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath}
			first, err := b.Plan(t.Context())
			must(t, err)
			r := day2.Rebase{Machine: m, Append: []string{"new=1"}}
			byHand, err := r.Plan(t.Context(), day2.RunOptions{})
			must(t, err)
			for _, plan := range []pivot.Plan{first, byHand} {
				if notes := strings.Join(plan.Notes, "; "); strings.Contains(notes, excluded) != able {
					t.Errorf("notes %q, want that ways are excluded: %v", notes, able)
				}
			}
		})
	}
}

// TestOnceByKexecRetried: each attempt of a first boot judges the coming entry anew: what lets kexec start it, or
// does not any more, may change between two attempts.
func TestOnceByKexecRetried(t *testing.T) {
	h := newKexecOnly(t)
	must(t, h.bootKexecOnly())
	h.expect("A B", pivot.PhaseCommitted, true)
	h.Boot() // it did not come up
	h.Write("/proc/sys/kernel/kexec_load_disabled", []byte("1\n"))
	must(t, h.bootKexecOnly())
	h.expect("B A", pivot.PhaseCommitted, false)
	if r := h.journal(); len(h.Kexecs) != 1 || h.Reboots != 1 || r.Attempt != 2 || !strings.Contains(h.notes, noFallback) {
		t.Errorf("kexec %+v, %d reboots, attempt %d, notes %s", h.Kexecs, h.Reboots, r.Attempt, h.notes)
	}
}

// TestOnceChangedAfterTheCommit: an entry that another program changes after the commit is judged again at the
// load, by the same rule.
func TestOnceChangedAfterTheCommit(t *testing.T) {
	h := newKexecOnly(t)
	h.oneShot()
	h.rebaseOnce(nil, func(r *day2.Rebase) {
		emit := r.Progress.Emit
		r.Progress.Emit = func(e pivot.Event) {
			emit(e)
			if e.Kind == pivot.EventBegan && e.Step == pivot.StepReboot {
				h.editNew("options ", " fips=1")
			}
		}
	})
	h.expectOnce(1)
	if len(h.Kexecs) != 0 || !strings.Contains(h.notes, promised) || !strings.Contains(h.notes, "not by kexec but by an ordinary reboot: boot entry ostree-") {
		t.Errorf("kexec %+v, notes %s", h.Kexecs, h.notes)
	}
}

// TestOnceWithASlot: a plan that is made again, once the fleet's lock has let the machine, is judged again.
func TestOnceWithASlot(t *testing.T) {
	for name, able := range map[string]bool{"it can": true, "it cannot": false} {
		t.Run(name, func(t *testing.T) {
			h := newMember(t)
			h.set("fallback=auto\nreboot-method=kexec")
			if !able {
				h.addOption("fips=1")
			}
			must(t, h.rebase())
			if (len(h.Kexecs) == 1) != able || strings.Contains(h.notes, noFallback) == able || strings.Contains(h.notes, promised) != able {
				t.Errorf("kexec %+v, notes %s", h.Kexecs, h.notes)
			}
		})
	}
}
