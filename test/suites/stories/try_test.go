package stories_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"machine-pivot/day2"
	"machine-pivot/day2/trial"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/rpmostree"
)

// tried is a machine that can try a new system.
type tried struct {
	*hostdir.Host
	t      *testing.T
	up     time.Duration // since the kernel's start
	health string        // the state of each unit
	broken bool          // checks fail
	check  func()        // what happens during a check; nil: nothing
	asked  []string      // commands for the boot loader, and checks
	notes  string
	old    ostree.Checksum // commit of the old system
}

// newTried returns a machine with the trial's unit. No boot loader is known: see oneShot.
func newTried(t *testing.T) *tried {
	sample.Short(t, 6)
	h := &tried{Host: hostdir.New(t), t: t, health: "active"}
	h.Ostree.Version = hostdir.LockInState
	booted, err := h.Sysroot().Booted()
	must(t, err)
	h.old = booted.Checksum
	h.Write("/etc/systemd/system/"+trial.Unit, []byte("[Service]\n"))
	h.Write("/etc/pivot/firstboot.conf", []byte("health=a.service\n"))
	link := h.Path("/etc/systemd/system/sysinit.target.wants/" + trial.Unit)
	must(t, errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink("/etc/systemd/system/"+trial.Unit, link)))
	return h
}

const loaderFeatures, loaderOnce = "/sys/firmware/efi/efivars/LoaderFeatures-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", "/sys/firmware/efi/efivars/LoaderEntryOneShot-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"

// oneShot sets the EFI variable of a boot loader that supports one-shot entries, and installs bootctl.
func (h *tried) oneShot() {
	h.Write(loaderFeatures, []byte{6, 0, 0, 0, 0x18, 0, 0, 0, 0, 0, 0, 0})
	h.Write("/usr/bin/bootctl", nil)
}

// BootEntry also has the boot loader drop the entry that it was to start once, as it does whatever it starts.
func (h *tried) BootEntry(i int) {
	h.t.Helper()
	must(h.t, os.RemoveAll(h.Path(loaderOnce)))
	h.Host.BootEntry(i)
}

// Boot boots the default.
func (h *tried) Boot() {
	h.t.Helper()
	h.BootEntry(0)
}

func (h *tried) newMachine() *machine.Machine {
	m := newMachine(h.t, h.Host)
	m.Progress.Emit = func(e pivot.Event) {
		if e.Kind == pivot.EventNoted {
			h.notes += e.Message + "\n"
		}
	}
	run := m.Host.Run
	changed := *m.Host
	changed.Uptime = func() (time.Duration, error) { return h.up, nil }
	changed.Run = func(ctx context.Context, argv ...string) ([]byte, error) {
		switch argv[0] {
		case "systemctl":
			return []byte("ActiveState=" + h.health + "\n"), nil
		case "/bin/sh", "bootctl":
			h.asked = append(h.asked, strings.Join(argv, " "))
			if h.check != nil && argv[0] == "/bin/sh" {
				h.check()
			}
			if h.broken {
				return nil, errors.New("exit status 1")
			}
			if argv[0] == "bootctl" {
				h.Write(loaderOnce, []byte(argv[2]))
			}
			return nil, nil
		}
		return run(ctx, argv...)
	}
	m.Host = &changed
	return m
}

// stoppedByReboot returns a context that ends when the machine is asked to reboot.
func stoppedByReboot(t *testing.T, m *machine.Machine, h *hostdir.Host) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	m.Host.Reboot = func(context.Context) error { h.Reboots++; cancel(); return nil }
	m.Host.Kexec = func(_ context.Context, k host.Kernel) error { h.Kexecs = append(h.Kexecs, k); cancel(); return nil }
	return ctx
}

// trying returns a machine with the flags of a trial.
func trying(m *machine.Machine, terms trial.Terms) *machine.Machine {
	m.Given = machine.Given{"try": {terms.For.String()}, "confirm": {string(terms.Confirm)}}
	if len(terms.Checks) > 0 {
		m.Given["check"] = terms.Checks
	}
	return m
}

// trial returns the trial in the journal; nil if there is none.
func (h *tried) trial() *trial.Trial {
	h.t.Helper()
	in, err := trial.In(h.journal())
	must(h.t, err)
	return in
}

// change changes the trial in the journal.
func (h *tried) change(by func(*trial.Trial)) {
	h.t.Helper()
	r, tried := h.journal(), h.trial()
	by(tried)
	must(h.t, errors.Join(tried.KeepIn(&r), pivot.JournalIn(h.Root).Save(r)))
}

// try commits a new system on trial, up to the reboot.
func (h *tried) try(try trial.Terms) error {
	h.t.Helper()
	m := h.newMachine()
	ctx := stoppedByReboot(h.t, m, h.Host)
	r := day2.Rebase{Machine: trying(m, try), Image: h.Image, Append: []string{"new=1"}, Reboot: true}
	_, err := r.Run(ctx, day2.RunOptions{})
	return err
}

// enter boots the system on trial, as the boot loader does with a one-shot entry.
func (h *tried) enter() {
	h.t.Helper()
	all, err := h.Sysroot().Deployments()
	must(h.t, err)
	h.BootEntry(slices.IndexFunc(all, func(d ostree.Deployment) bool { return d.Checksum != h.old }))
	h.up = time.Minute
	if h.Version() != "B.2" {
		h.t.Fatalf("version %s runs", h.Version())
	}
}

// conduct does what the trial's unit does, with five minutes between checks.
func (h *tried) conduct() error {
	h.t.Helper()
	t := trial.Program{Machine: h.newMachine()}
	ctx := stoppedByReboot(h.t, t.Machine, h.Host)
	t.Sleep = func(context.Context, time.Duration) error { h.up += 5 * time.Minute; return nil }
	return t.Run(ctx)
}

func (h *tried) confirm() error {
	h.t.Helper()
	return trial.KeepByHand(h.t.Context(), h.newMachine())
}

// expect checks the boot entries, the default first (A is the old system, B the new one), the
// phase in the status, and whether there is a trial's stamp.
func (h *tried) expect(entries string, phase pivot.Phase, stamp bool) {
	h.t.Helper()
	all, err := h.Sysroot().Deployments()
	must(h.t, err)
	var got []string
	for _, d := range all {
		got = append(got, map[bool]string{true: "A", false: "B"}[d.Checksum == h.old])
	}
	if text := strings.Join(got, " "); text != entries {
		h.t.Errorf("boot entries %s, want %s", text, entries)
	}
	m := h.newMachine()
	s, err := m.Status(h.t.Context())
	if err != nil || s.Phase != phase {
		h.t.Errorf("status %s, want %s (%v, %+v)", s.Phase, phase, err, s.Error)
	}
	if _, err := os.Stat(h.Path(pivot.StateDir + "/" + trial.Name)); (err == nil) != stamp {
		h.t.Errorf("the trial's stamp: %v, want it there: %v", err, stamp)
	}
}

func (h *tried) journal() pivot.JournalContent {
	h.t.Helper()
	r, err := pivot.JournalIn(h.Root).Load()
	must(h.t, err)
	return r
}

var tenMinutes = trial.Terms{For: 10 * time.Minute, Confirm: trial.ConfirmByHand, Checks: []string{"check x"}}

// TestTryConfirmed (P59): the new system is committed, the old one stays the default, and
// the new one is booted once. When it is confirmed, it becomes the default permanently.
func TestTryConfirmed(t *testing.T) {
	h := newTried(t)
	h.oneShot()
	must(t, h.try(tenMinutes))
	h.expect("A B", pivot.PhaseCommitted, true)
	if h.Reboots != 1 || len(h.asked) != 1 || !strings.HasPrefix(h.asked[0], "bootctl set-oneshot ostree-") || !strings.Contains(h.notes, "booted once, by a one-shot entry") {
		t.Errorf("%d reboots, asked %q, notes %s", h.Reboots, h.asked, h.notes)
	}
	h.enter()
	h.health, h.asked = "activating", nil
	if err := h.confirm(); fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "unit a.service is activating") {
		t.Errorf("confirmed what does not work: %v", err)
	}
	h.health, h.broken = "active", true
	if err := h.confirm(); err == nil || !strings.Contains(err.Error(), `check "check x" fails`) {
		t.Errorf("confirmed what does not work: %v", err)
	}
	h.broken = false
	must(t, h.confirm())
	h.expect("B A", pivot.PhaseDone, false)
	must(t, h.conduct()) // the unit finds nothing to do
	h.expect("B A", pivot.PhaseDone, false)
	if err := h.confirm(); fault.KindOf(err) != fault.Refused {
		t.Errorf("confirmed twice: %v", err)
	}
	h.Boot()
	must(t, h.conduct())
	h.expect("B A", pivot.PhaseDone, false)
}

// TestTryByItself (P59): with automatic confirmation the system is confirmed as soon as it has
// proven itself.
func TestTryByItself(t *testing.T) {
	h := newTried(t)
	h.oneShot()
	try := tenMinutes
	try.Confirm = trial.ConfirmAuto
	must(t, h.try(try))
	h.enter()
	h.health = "activating"
	m := trial.Program{Machine: h.newMachine()}
	ctx := stoppedByReboot(t, m.Machine, h.Host)
	looks := 0
	m.Sleep = func(context.Context, time.Duration) error {
		if looks++; looks == 2 {
			h.health = "active"
		}
		h.expect("A B", pivot.PhaseTrial, true)
		return nil
	}
	must(t, m.Run(ctx))
	if looks != 2 {
		t.Errorf("confirmed after %d looks", looks)
	}
	h.expect("B A", pivot.PhaseDone, false)
}

// TestTryFails (P59): if the new system is not confirmed in time, the old one is booted again and
// removes it. The journal has the reason.
func TestTryFails(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*tried)
		why   string
	}{
		"nobody confirms": {func(*tried) {}, "nobody has confirmed it"},
		"unit":            {func(h *tried) { h.health = "failed" }, "unit a.service is failed"},
		"check":           {func(h *tried) { h.broken = true }, `check "check x" fails: exit status 1`},
		"proof":           {func(h *tried) { h.Write("/proc/cmdline", []byte("quiet\n")) }, "new=1"},
		"settings":        {func(h *tried) { h.Write("/etc/pivot/firstboot.conf", []byte("health=?\n")) }, "it is a list of units"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTried(t)
			h.oneShot()
			must(t, h.try(tenMinutes))
			h.enter()
			c.spoil(h)
			must(t, h.conduct())
			if h.Reboots != 2 || h.up < 10*time.Minute || h.up > 16*time.Minute {
				t.Errorf("%d reboots, the last %v after the kernel's start", h.Reboots, h.up)
			}
			h.expect("A B", pivot.PhaseFailed, true)
			if err := h.confirm(); err == nil || !strings.Contains(err.Error(), "has failed its trial") {
				t.Errorf("confirmed when it was over: %v", err)
			}
			h.Boot()
			h.expect("A B", pivot.PhaseFailed, true)
			must(t, h.conduct())
			h.expect("A", pivot.PhaseFailed, false)
			if r := h.journal(); r.Error == nil || !strings.Contains(r.Error.Message, c.why) || len(r.History) != 1 || r.History[0].Phase != pivot.PhaseFailed {
				t.Errorf("the journal says %+v, %+v, want %q", r.Error, r.History, c.why)
			}
		})
	}
}

// full is a disk without space.
type full struct{ hostfiles.Disk }

func (full) Write(string, []byte, fs.FileMode) error         { return syscall.ENOSPC }
func (full) Make(string, hostfiles.File, string) error       { return syscall.ENOSPC }
func (full) Overwrite(path string, content []byte) error     { return syscall.ENOSPC }
func (full) Mkdir(path string, mode fs.FileMode) (err error) { return syscall.ENOSPC }

// fill has a machine's journal on a disk without space.
func fill(m *machine.Machine) { m.Progress.Journal.Disk = full{m.Progress.Journal.Disk} }

// TestTryEnds: a trial ends when its time is over, whatever fails meanwhile. It needs neither the journal nor that
// the old system could be made the default when the new one came up.
func TestTryEnds(t *testing.T) {
	staged := func(h *tried, _ *machine.Machine) { h.stage() }
	for name, c := range map[string]struct {
		byDefault    bool // the boot loader starts no entry once
		start, later func(*tried, *machine.Machine)
	}{
		"the disk is full from the start":     {start: func(_ *tried, m *machine.Machine) { fill(m) }},
		"the same, and it is the default":     {byDefault: true, start: func(_ *tried, m *machine.Machine) { fill(m) }},
		"the disk becomes full":               {later: func(_ *tried, m *machine.Machine) { fill(m) }},
		"something is staged, from the start": {byDefault: true, start: staged},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTried(t)
			if !c.byDefault {
				h.oneShot()
			}
			must(t, h.try(tenMinutes))
			h.enter()
			d := trial.Program{Machine: h.newMachine()}
			ctx := stoppedByReboot(t, d.Machine, h.Host)
			if c.start != nil {
				c.start(h, d.Machine)
			}
			looks := 0
			d.Sleep = func(context.Context, time.Duration) error {
				h.up += 5 * time.Minute
				if looks++; looks == 1 && c.later != nil {
					c.later(h, d.Machine)
				}
				return nil
			}
			must(t, d.Run(ctx))
			if h.Reboots != 2 || h.up < 10*time.Minute || h.up > 16*time.Minute {
				t.Errorf("%d reboots, the last %v after the kernel's start", h.Reboots, h.up)
			}
			h.Boot()
			h.expect("A B", pivot.PhaseFailed, true)
			must(t, h.conduct())
			h.expect("A", pivot.PhaseFailed, false)
		})
	}
}

// TestTryMakesTheOldOneFirst: what kept the system on trial from making the old one the default ends during the trial.
// Then the old one is the default until the trial ends.
func TestTryMakesTheOldOneFirst(t *testing.T) {
	h := newTried(t)
	must(t, h.try(tenMinutes))
	h.enter()
	h.stage()
	d := trial.Program{Machine: h.newMachine()}
	ctx := stoppedByReboot(t, d.Machine, h.Host)
	looks := 0
	d.Sleep = func(ctx context.Context, _ time.Duration) error {
		if looks++; looks == 1 {
			h.expect("B A", pivot.PhaseTrial, true)
			_, err := h.Run(ctx, "ostree", "admin", "undeploy", "0")
			return err
		}
		h.expect("A B", pivot.PhaseTrial, true)
		return h.confirm()
	}
	must(t, d.Run(ctx))
	h.expect("B A", pivot.PhaseDone, false)
	if n := strings.Count(h.notes, "is still the default"); n != 1 {
		t.Errorf("it is said %d times: %s", n, h.notes)
	}
}

// TestTryNeverCameUp (P59): if the new kernel hangs, the next power cycle boots the old system,
// which ends the trial.
func TestTryNeverCameUp(t *testing.T) {
	for _, kexec := range []bool{true, false} {
		h := newTried(t)
		if kexec {
			h.Write("/etc/pivot/firstboot.conf", []byte("reboot-method=kexec\n"))
		} else {
			h.oneShot()
		}
		must(t, h.try(tenMinutes))
		if kexec != (len(h.Kexecs) == 1) || kexec && !strings.Contains(h.Kexecs[0].Cmdline, "new=1") {
			t.Errorf("kexec %+v", h.Kexecs)
		}
		h.Boot()
		h.expect("A B", pivot.PhaseFailed, true) // pivot status before the unit runs
		must(t, h.conduct())
		h.expect("A", pivot.PhaseFailed, false)
		if r := h.journal(); r.Error == nil || !strings.Contains(r.Error.Message, "it never came up") {
			t.Errorf("the journal says %+v", r.Error)
		}
		must(t, h.try(tenMinutes)) // again
		h.expect("A B", pivot.PhaseCommitted, true)
	}
}

// TestTryStoppedAtItsEnd (P59): after a shutdown while the old system removes the failed one, the
// next boot removes it.
func TestTryStoppedAtItsEnd(t *testing.T) {
	h := newTried(t)
	h.oneShot()
	must(t, h.try(tenMinutes))
	h.Boot()
	stopped := trial.Program{Machine: h.newMachine()}
	ctx, cancel := context.WithCancel(t.Context())
	run := stopped.Host.Run
	stopped.Host.Run = func(ctx context.Context, argv ...string) ([]byte, error) {
		if slices.Contains(argv, "undeploy") {
			cancel()
			return nil, ctx.Err()
		}
		return run(ctx, argv...)
	}
	must(t, stopped.Run(ctx))
	h.expect("A B", pivot.PhaseFailed, true)
	if !strings.Contains(h.notes, "the next boot completes") || strings.Contains(h.notes, "pivot confirm") {
		t.Errorf("notes %s", h.notes)
	}
	h.Boot()
	must(t, h.conduct())
	h.expect("A", pivot.PhaseFailed, false)
}

// TestTryWithoutOneShot (P59): without a one-shot entry the new system is the default until its
// userspace makes the old one the default again. A note says so before.
func TestTryWithoutOneShot(t *testing.T) {
	h := newTried(t)
	must(t, h.try(tenMinutes))
	h.expect("B A", pivot.PhaseCommitted, true)
	if !strings.Contains(h.notes, "somebody must choose the old system in the boot menu: no boot loader is known here") {
		t.Errorf("notes %s", h.notes)
	}
	h.enter()
	must(t, h.conduct())
	h.expect("A B", pivot.PhaseFailed, true)
	h.Boot()
	must(t, h.conduct())
	h.expect("A", pivot.PhaseFailed, false)
}

// TestTryBesideStaged: where the boot loader starts no entry once, the system on trial is not entered while something
// is staged, which the shutdown would make the default. The old system stays the default.
func TestTryBesideStaged(t *testing.T) {
	h := newTried(t)
	m := h.newMachine()
	ctx := stoppedByReboot(t, m, h.Host)
	changed, staged := *m.Host, false
	changed.Run = func(ctx context.Context, argv ...string) ([]byte, error) {
		out, err := m.Host.Run(ctx, argv...)
		if slices.Contains(argv, "set-default") && !staged { // the old system is the default again, after the commit
			staged = true
			h.stage()
		}
		return out, err
	}
	other := *m
	other.Host = &changed
	r := day2.Rebase{Machine: trying(&other, tenMinutes), Image: h.Image, Append: []string{"new=1"}, Reboot: true}
	_, err := r.Run(ctx, day2.RunOptions{})
	if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "cannot boot the new system only once") || !strings.Contains(fault.HintOf(err), "undeploy 0") {
		t.Errorf("error %v", err)
	}
	all, err := h.Sysroot().Deployments()
	must(t, err)
	if !staged || h.Reboots != 0 || all[0].Checksum != h.old {
		t.Errorf("staged %v, %d reboots, the default is %s", staged, h.Reboots, all[0].ID())
	}
}

// TestTryByTheBootMenu (P59): the old system is the default once somebody has chosen it in the boot menu, because the
// new one is the default and does not come up.
func TestTryByTheBootMenu(t *testing.T) {
	h := newTried(t)
	must(t, h.try(tenMinutes))
	h.expect("B A", pivot.PhaseCommitted, true)
	h.BootEntry(1)
	h.expect("B A", pivot.PhaseFailed, true)
	must(t, h.conduct())
	h.expect("A", pivot.PhaseFailed, false)
	if r := h.journal(); r.Error == nil || !strings.Contains(r.Error.Message, "it never came up") {
		t.Errorf("the journal says %+v", r.Error)
	}
}

// thirdSystem adds a copy of the old system, which is the last one in the boot menu.
const thirdSystem = `cd sysroot; link=$(grep -o 'ostree=[^ ]*' boot/loader/entries/ostree-1-os.conf | cut -d= -f2); old=$(readlink -f .$link); new=${old%.0}.7
cp -a $old $new; cp -a $old.origin $new.origin; ln -s ../../../deploy/os/deploy/$(basename $new) .${link%/*}/9
sed "s,ostree=$link,ostree=${link%/*}/9,; s,^version .*,version 0," boot/loader/entries/ostree-1-os.conf > boot/loader/entries/ostree-0-os.conf`

// TestTryThirdSystem: if a third deployment boots while the system on trial is the default, the trial has failed,
// however it is confirmed. The old system is the default from then on, or else the running one.
func TestTryThirdSystem(t *testing.T) {
	for name, c := range map[string]struct {
		guarded bool // a first boot has made it
		oldGone bool
		entries string
	}{
		"by hand":                 {entries: "A A"},
		"by hand, and no old one": {oldGone: true, entries: "A"},
		"a first boot":            {guarded: true, entries: "A B A"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTried(t)
			if c.guarded {
				h = newGuarded(t)
				must(t, h.bootGuarded())
				_, err := h.Run(t.Context(), "ostree", "admin", "set-default", "1")
				must(t, err)
			} else {
				must(t, h.try(tenMinutes))
			}
			shell(t, h.Host, thirdSystem)
			h.BootEntry(2)
			if c.oldGone {
				must(t, h.Undeploy(1))
			}
			if c.guarded {
				must(t, h.bootGuarded())
				if r := h.journal(); r.Attempt != 2 {
					t.Errorf("attempt %d", r.Attempt)
				}
				return
			}
			must(t, h.conduct())
			h.expect(c.entries, pivot.PhaseFailed, false)
			h.Boot()
			if v := h.Version(); v == "B.2" {
				t.Errorf("version %s is the default", v)
			}
		})
	}
}

// TestTryOtherDefault: a third system that somebody has made the default meanwhile stays it when the trial ends.
func TestTryOtherDefault(t *testing.T) {
	h := newTried(t)
	must(t, h.try(tenMinutes))
	shell(t, h.Host, thirdSystem)
	h.BootEntry(2)
	_, err := h.Run(t.Context(), "ostree", "admin", "set-default", "2")
	must(t, err)
	before, err := h.Sysroot().Deployments()
	must(t, err)
	must(t, h.conduct())
	after, err := h.Sysroot().Deployments()
	must(t, err)
	if len(before) != 3 || len(after) != 2 || after[0].ID() != before[0].ID() || h.journal().Phase != pivot.PhaseFailed {
		t.Errorf("%v became %v, phase %s", before, after, h.journal().Phase)
	}
}

// TestTryStillTold: what the boot loader was told ends with the trial, also if the machine was started past it.
func TestTryStillTold(t *testing.T) {
	for name, end := range map[string]func(*tried) error{"closed": (*tried).conduct, "replaced": day2Rebase} {
		t.Run(name, func(t *testing.T) {
			h := newTried(t)
			h.oneShot()
			must(t, h.try(tenMinutes))
			once := h.Read(loaderOnce)
			if len(once) == 0 {
				t.Fatal("the boot loader was told nothing")
			}
			h.Boot()
			h.Write(loaderOnce, once) // a kexec or a soft reboot, by somebody, leaves it
			must(t, end(h))
			if left := h.Read(loaderOnce); len(left) > 0 {
				t.Errorf("the boot loader still starts %q once", left)
			}
		})
	}
}

// TestTryDefaultUndone: where the boot loader starts no entry once, a try that is stopped or fails after the new
// system was made the default leaves the old one the default.
func TestTryDefaultUndone(t *testing.T) {
	for name, spoil := range map[string]func(h *tried, m *machine.Machine, stop func()){
		"stopped": func(h *tried, m *machine.Machine, stop func()) {
			run, n := m.Host.Run, 0
			m.Host.Run = func(ctx context.Context, argv ...string) ([]byte, error) {
				out, err := run(ctx, argv...)
				if slices.Contains(argv, "set-default") {
					if n++; n == 2 { // the first makes the old system the default after the commit
						stop()
						err = errors.Join(err, ctx.Err())
					}
				}
				return out, err
			}
		},
		"failed": func(h *tried, m *machine.Machine, _ func()) {
			n := 0
			h.Ostree.Fail = func(call int, after bool) error {
				if !after && h.Ostree.Calls[call-1] == "set-default" {
					if n++; n == 2 {
						return errors.New("no space")
					}
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTried(t)
			m := h.newMachine()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			m.Host.Reboot = func(context.Context) error { t.Error("rebooted"); return nil }
			spoil(h, m, stop)
			r := day2.Rebase{Machine: trying(m, tenMinutes), Image: h.Image, Reboot: true}
			if _, err := r.Run(ctx, day2.RunOptions{}); err == nil {
				t.Error("no error")
			}
			h.expect("A B", pivot.PhaseCommitted, true)
			h.Boot()
			must(t, h.conduct())
			h.expect("A", pivot.PhaseFailed, false)
			if r := h.journal(); !strings.Contains(r.Error.Message, "rebooted before it was to be entered") {
				t.Errorf("the journal says %q", r.Error.Message)
			}
		})
	}
}

// TestTryRebootRefused (P59): if the reboot is inhibited, no other reboot enters the new
// system.
func TestTryRebootRefused(t *testing.T) {
	for _, oneShot := range []bool{true, false} {
		h := newTried(t)
		if oneShot {
			h.oneShot()
		}
		m := h.newMachine()
		m.Host.Reboot = func(context.Context) error { return fault.New(fault.Refused, "no") }
		r := day2.Rebase{Machine: trying(m, tenMinutes), Image: h.Image, Reboot: true}
		if _, err := r.Run(t.Context(), day2.RunOptions{}); err == nil {
			t.Error("no error")
		}
		h.expect("A B", pivot.PhaseCommitted, true)
		if oneShot && (len(h.asked) != 2 || h.asked[1] != "bootctl set-oneshot ") {
			t.Errorf("asked %q", h.asked)
		}
		h.Boot()
		must(t, h.conduct())
		h.expect("A", pivot.PhaseFailed, false)
	}
}

// TestTryCutAfterOldIsDefault: the power fails right after the old system was made the default again, before the
// journal was written once more. The trial has failed, and its deployment is removed.
func TestTryCutAfterOldIsDefault(t *testing.T) {
	h := newTried(t)
	h.oneShot()
	var cut pivot.JournalContent
	h.Ostree.Fail = func(call int, after bool) error {
		if after && h.Ostree.Calls[call-1] == "set-default" {
			cut = h.journal()
		}
		return nil
	}
	must(t, h.try(tenMinutes))
	h.Ostree.Fail = nil
	must(t, pivot.JournalIn(h.Root).Save(cut))
	h.expect("A B", pivot.PhaseCommitted, true)
	h.Boot()
	must(t, h.conduct())
	h.expect("A", pivot.PhaseFailed, false)
}

// TestTryMeanwhile (P59): nothing else changes a machine on trial. What another tool stages is
// removed before it can be booted. After the trial, a change of the old system closes it.
func TestTryMeanwhile(t *testing.T) {
	h := newTried(t)
	h.oneShot()
	must(t, h.try(tenMinutes))
	h.enter()
	if err := rollback(t, h.Host); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "on trial") {
		t.Errorf("rollback: %v", err)
	}
	if _, _, err := apply(t, h.Host, "  kernelArguments: [x=1]\n"); fault.KindOf(err) != fault.Refused || !strings.Contains(fault.HintOf(err), "pivot confirm") {
		t.Errorf("apply: %v", err)
	}
	origin := filepath.Join(t.TempDir(), "origin")
	must(t, os.WriteFile(origin, []byte("[origin]\nrefspec=x\n"), 0o644))
	_, err := h.Run(t.Context(), "ostree", "admin", "deploy", "--stage", "--os=os", "--origin-file="+origin, "--karg-append=root=LABEL=root", h.Commit)
	must(t, err)
	if err := h.confirm(); err == nil || !strings.Contains(err.Error(), "staged") {
		t.Errorf("confirmed with something staged: %v", err)
	}
	must(t, h.conduct())
	if staged, err := h.Sysroot().Staged(); err != nil || staged != nil {
		t.Errorf("staged %+v, %v", staged, err)
	}
	h.Boot()
	// A change of the old system also closes the trial.
	m := h.newMachine()
	r := day2.Rebase{Machine: m, Append: []string{"y=1"}}
	_, err = r.Run(t.Context(), day2.RunOptions{})
	must(t, err)
	h.expect("A A", pivot.PhaseCommitted, false)
}

// TestTryWithTheImagesUnit (P59): the unit that conducts the trial may come from the image.
func TestTryWithTheImagesUnit(t *testing.T) {
	h := newTried(t)
	h.oneShot()
	shell(t, h.Host, "mkdir -p usr/lib/systemd/system && mv etc/systemd/system/pivot-trial.service usr/lib/systemd/system")
	h.ExtendNext("usr/lib/systemd/system/" + trial.Unit)
	h.Image = h.Push(h.NativeImage())
	must(t, h.try(tenMinutes))
	h.expect("A B", pivot.PhaseCommitted, true)
	h.enter()
	if _, err := os.Lstat(h.Path("/etc/systemd/system/sysinit.target.wants/" + trial.Unit)); err != nil {
		t.Errorf("the unit is not enabled in the new system: %v", err)
	}
	must(t, h.confirm())
}

// TestTryByRpmOstree (P59): if libostree cannot make a deployment the default, rpm-ostree
// does.
func TestTryByRpmOstree(t *testing.T) {
	h := newTried(t)
	h.oneShot()
	h.Ostree.Version = ""
	h.InstallRpmOstree(rpmostree.Control{})
	direct := false
	h.Ostree.Fail = func(call int, after bool) error {
		if h.Ostree.Calls[call-1] != "set-default" || after {
			return nil
		}
		if direct = !direct; direct { // otherwise the caller is rpm-ostree
			return errors.New("error: Unknown command 'set-default'")
		}
		return nil
	}
	asked := func() { // the record of calls is per boot
		t.Helper()
		if verbs := verbsOf(t, h.Host); !slices.Equal(verbs, []string{"rollback"}) {
			t.Errorf("rpm-ostree was asked to %q", verbs)
		}
	}
	must(t, h.try(tenMinutes))
	h.expect("A B", pivot.PhaseCommitted, true)
	asked()
	h.enter()
	must(t, h.confirm())
	h.expect("B A", pivot.PhaseDone, false)
	asked()
}

// TestTryRefused (P59): a system that cannot be tried is refused before anything is written.
func TestTryRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*tried)
		why   string
	}{
		"old libostree":  {func(h *tried) { h.Ostree.Version = "" }, "libostree 2022.7 cannot make a deployment the default"},
		"no unit":        {func(h *tried) { shell(t, h.Host, "rm etc/systemd/system/sysinit.target.wants/*") }, "is not enabled"},
		"not in image":   {func(h *tried) { shell(t, h.Host, "rm etc/systemd/system/pivot-trial.service") }, "has no /usr/lib/systemd/system/pivot-trial.service"},
		"the first boot": {func(h *tried) { ask(t, h.Host) }, "the first boot is not over"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTried(t)
			c.spoil(h)
			if err := h.try(tenMinutes); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), c.why) {
				t.Errorf("error %v, want %q", err, c.why)
			}
			if all, err := h.Sysroot().Deployments(); err != nil || len(all) != 1 || h.Reboots > 0 {
				t.Errorf("%d deployments, %d reboots, %v", len(all), h.Reboots, err)
			}
		})
	}
}
