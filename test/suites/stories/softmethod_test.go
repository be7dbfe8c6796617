package stories_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// reboots are the ways by which a machine was told to leave its system, in order.
type reboots struct {
	ways  []string
	notes string
}

// rebase changes a machine by a method, up to its reboot. softly is what systemd says to a soft reboot.
func rebase(t *testing.T, h *hostdir.Host, r day2.Rebase, method settings.RebootMethod, softly error) reboots {
	t.Helper()
	return leave(t, h, method, softly, func(ctx context.Context, m *machine.Machine) error {
		if r.Machine != nil {
			m.Given = r.Given
		}
		r.Machine, r.Reboot = m, true
		_, err := r.Run(ctx, day2.RunOptions{})
		return err
	})
}

// leave has a machine changed, up to its reboot.
func leave(t *testing.T, h *hostdir.Host, method settings.RebootMethod, softly error, change func(context.Context, *machine.Machine) error) reboots {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var done reboots
	way := func(name string, err error) error {
		done.ways = append(done.ways, name)
		if err == nil {
			cancel()
		}
		return err
	}
	m := newMachine(t, h)
	changed := *m.Host
	changed.Softly = func(context.Context) error { return way("soft", softly) }
	changed.Kexec = func(context.Context, host.Kernel) error { return way("kexec", nil) }
	changed.Reboot = func(context.Context) error { return way("reboot", nil) }
	m.Host, m.RebootMethod = &changed, method
	m.Progress.Emit = func(e pivot.Event) {
		if e.Kind == pivot.EventNoted {
			done.notes += e.Message + "\n"
		}
	}
	must(t, change(ctx, m))
	return done
}

// TestSoftMethod (P46): a soft reboot enters the new system if that, or the cheapest way, is asked for, and libostree
// can prepare it. Otherwise the next way does, with the reason, and nothing of the preparation is left.
func TestSoftMethod(t *testing.T) {
	pinned := func(*hostdir.Host) day2.Rebase { return day2.Rebase{Pinning: management(t, "0-1")} }
	another := func(h *hostdir.Host) day2.Rebase { return day2.Rebase{Image: h.Image} }
	argument := func(*hostdir.Host) day2.Rebase { return day2.Rebase{Append: []string{"quiet"}} }
	labelled := func(h *hostdir.Host) day2.Rebase {
		h.Write("/etc/selinux/config", []byte("SELINUX=enforcing\nSELINUXTYPE=a\n"))
		return pinned(h)
	}
	const softly, notKnown = "by a soft reboot if kernel, initramfs, kernel arguments and SELinux policy stay, else ", "not by a soft reboot, because "
	for name, c := range map[string]struct {
		method settings.RebootMethod
		asks   func(*hostdir.Host) day2.Rebase
		spoil  func(*hostdir.Host)
		softly error
		ways   string
		notes  []string
	}{
		"soft":                 {method: settings.RebootSoft, asks: pinned, ways: "soft", notes: []string{"entered " + softly + "by an ordinary reboot"}},
		"auto":                 {method: settings.RebootAuto, asks: pinned, ways: "soft", notes: []string{"entered " + softly + "by kexec, else by an ordinary reboot"}},
		"reboot":               {method: settings.RebootFirmware, asks: pinned, ways: "reboot"},
		"another kernel":       {method: settings.RebootSoft, asks: another, ways: "reboot", notes: []string{"not by a soft reboot but by an ordinary reboot: libostree does not prepare it", "different kernel state"}},
		"another kernel, auto": {method: settings.RebootAuto, asks: another, ways: "kexec", notes: []string{"not by a soft reboot but by kexec: libostree does not prepare it"}},
		"another argument":     {method: settings.RebootSoft, asks: argument, ways: "reboot", notes: []string{"entered by an ordinary reboot; " + notKnown + "the kernel arguments change"}},
		"with SELinux":         {method: settings.RebootSoft, asks: labelled, ways: "soft"},
		"systemd refuses":      {method: settings.RebootSoft, asks: pinned, softly: errors.New("no such unit"), ways: "soft reboot", notes: []string{"not by a soft reboot but by an ordinary reboot: no such unit"}},
		"no composefs": {method: settings.RebootAuto, asks: pinned, spoil: func(h *hostdir.Host) { h.Write("/run/ostree-booted", nil) }, ways: "kexec",
			notes: []string{"entered by kexec, else by an ordinary reboot; not without a reboot, because only an initramfs can do that, on a first boot; " + notKnown + "the running system has no composefs"}},
		"an old libostree": {method: settings.RebootSoft, asks: pinned, spoil: func(h *hostdir.Host) { h.Ostree.Version = "2024.8" }, ways: "reboot",
			notes: []string{"entered by an ordinary reboot; " + notKnown + "libostree is older than 2025.3"}},
		"an old systemd": {method: settings.RebootSoft, asks: pinned, spoil: func(h *hostdir.Host) {
			must(t, os.Remove(h.Path("/usr/lib/systemd/system/systemd-soft-reboot.service")))
		}, ways: "reboot",
			notes: []string{notKnown + "systemd is older than 254"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostdir.New(t)
			h.AllowSoftReboots()
			if c.spoil != nil {
				c.spoil(h)
			}
			got := rebase(t, h, c.asks(h), c.method, c.softly)
			if strings.Join(got.ways, " ") != c.ways {
				t.Errorf("left by %q, want %q", got.ways, c.ways)
			}
			for _, note := range c.notes {
				if !strings.Contains(got.notes, note) {
					t.Errorf("no note %q in %s", note, got.notes)
				}
			}
			if soft := c.ways == "soft"; h.SoftPrepared() != soft {
				t.Errorf("prepared: %v, want %v", !soft, soft)
			}
			if c.ways != "soft" {
				h.Boot()
				expectStatusAt(t, h, pivot.PhaseDone)
				return
			}
			h.SoftReboot()
			expectStatusAt(t, h, pivot.PhaseDone) // before libostree has noted what runs, as pivot's first units
			h.BootComplete()
			expectStatusAt(t, h, pivot.PhaseDone)
		})
	}
}

// TestSoftMethodBack (P46): a soft reboot leads back, too, if the previous system has the same kernel arguments.
func TestSoftMethodBack(t *testing.T) {
	for name, c := range map[string]struct {
		change     day2.Rebase
		way, notes string
	}{
		"the same arguments": {day2.Rebase{Pinning: management(t, "0-1")}, "soft", "entered by a soft reboot if "},
		"other arguments":    {day2.Rebase{Append: []string{"quiet"}}, "reboot", "not by a soft reboot, because the kernel arguments change"},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostdir.New(t)
			h.AllowSoftReboots()
			if rebase(t, h, c.change, settings.RebootSoft, nil).ways[0] == "soft" {
				h.SoftReboot()
			} else {
				h.Boot()
			}
			expectStatusAt(t, h, pivot.PhaseDone)
			got := leave(t, h, settings.RebootSoft, nil, func(ctx context.Context, m *machine.Machine) error {
				return (&day2.Rollback{Machine: m, Reboot: true}).Run(ctx)
			})
			if strings.Join(got.ways, " ") != c.way || !strings.Contains(got.notes, c.notes) {
				t.Errorf("left by %q, want %q and %q in\n%s", got.ways, c.way, c.notes, got.notes)
			}
		})
	}
}

// TestSoftMethodKilled (P46): whatever a killed preparation has left is gone before the next one, which enters the
// committed system. Until then the machine continues as it is: the change is committed.
func TestSoftMethodKilled(t *testing.T) {
	for name, left := range map[string][]string{
		"before it was recorded": {"/run/nextroot/usr/old"},
		"recorded":               {"/run/nextroot/usr/old", "/run/ostree/nextroot-booted"},
		"an empty directory":     {"/run/nextroot/"},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostdir.New(t)
			h.AllowSoftReboots()
			for _, path := range left {
				if strings.HasSuffix(path, "/") {
					must(t, os.MkdirAll(h.Path(path), 0o755))
					continue
				}
				h.Write(path, nil)
			}
			got := rebase(t, h, day2.Rebase{Pinning: management(t, "0-1")}, settings.RebootSoft, nil)
			if strings.Join(got.ways, " ") != "soft" || !h.SoftPrepared() {
				t.Errorf("left by %q, notes %s", got.ways, got.notes)
			}
			if _, err := os.Stat(h.Path("/run/nextroot/usr/old")); err == nil {
				t.Error("what the first preparation left is still there")
			}
			expectStatusAt(t, h, pivot.PhaseCommitted)
			h.SoftReboot()
			expectStatusAt(t, h, pivot.PhaseDone)
		})
	}
}

// TestPreparedByAKilledWay: a killed way into the new system may leave the root of a soft reboot, or a loaded kernel.
// These do not outlive the next change of the next boot, whatever command makes it and however it reboots. Nor does it
// change what the next try of the same command does.
func TestPreparedByAKilledWay(t *testing.T) {
	for name, next := range map[string]func(*testing.T, *hostdir.Host){
		"a rollback": func(t *testing.T, h *hostdir.Host) { must(t, rollback(t, h)) },
		"another commit": func(t *testing.T, h *hostdir.Host) {
			r := day2.Rebase{Machine: newMachine(t, h), Append: []string{"quiet"}}
			_, err := r.Run(t.Context(), day2.RunOptions{})
			must(t, err)
		},
		"another commit, by another way": func(t *testing.T, h *hostdir.Host) {
			rebase(t, h, day2.Rebase{Append: []string{"quiet"}}, settings.RebootFirmware, nil)
		},
		"the same, by another way": func(t *testing.T, h *hostdir.Host) {
			rebase(t, h, day2.Rebase{Pinning: management(t, "0-1")}, settings.RebootFirmware, nil)
		},
	} {
		for _, way := range []settings.RebootMethod{settings.RebootSoft, settings.RebootKexec} {
			t.Run(name+" after "+string(way), func(t *testing.T) {
				h := hostdir.New(t)
				h.AllowSoftReboots()
				const loaded = "/sys/kernel/kexec_loaded"
				h.Unload = func() error { h.Write(loaded, []byte("0\n")); return nil }
				func() {
					defer func() { _ = recover() }()
					m := newMachine(t, h)
					changed := *m.Host
					changed.Softly = func(context.Context) error { panic("killed") }
					changed.Kexec = func(context.Context, host.Kernel) error { h.Write(loaded, []byte("1\n")); panic("killed") }
					m.Host, m.RebootMethod = &changed, way
					r := day2.Rebase{Machine: m, Pinning: management(t, "0-1"), Reboot: true}
					_, _ = r.Run(t.Context(), day2.RunOptions{})
				}()
				left := func() bool { return h.SoftPrepared() || string(h.Read(loaded)) == "1\n" }
				if !left() {
					t.Fatal("nothing is prepared")
				}
				next(t, h)
				if left() {
					t.Error("what is prepared is still there")
				}
			})
		}
	}
}

// TestSoftMethodNoted (P90): libostree notes only the first soft reboot since a boot. After another one pivot does that
// before a change, or libostree would go on from the system before.
func TestSoftMethodNoted(t *testing.T) {
	h := hostdir.New(t)
	h.AllowSoftReboots()
	const booted, next = "/run/ostree-booted", "/run/ostree/nextroot-booted"
	for _, set := range []string{"0", "0-1", "0-2"} {
		before := string(h.Read(booted))
		unlock, err := h.Host.Lock() // as each command that changes something
		must(t, err)
		must(t, unlock())
		got := rebase(t, h, day2.Rebase{Pinning: management(t, set)}, settings.RebootSoft, nil)
		if strings.Join(got.ways, " ") != "soft" {
			t.Fatalf("left by %q, notes %s", got.ways, got.notes)
		}
		if set != "0" && (string(h.Read(booted)) == before || h.Read(next) == nil) {
			t.Errorf("CPUs %s: the record of the system before is still there, or none of the next one", set)
		}
		h.SoftReboot()
		expectStatusAt(t, h, pivot.PhaseDone)
	}
}

// TestSoftMethodPlanned: a plan says how the new system is going to be entered, and why not in a cheaper way.
func TestSoftMethodPlanned(t *testing.T) {
	h := hostdir.New(t)
	h.AllowSoftReboots()
	h.Write("/proc/sys/kernel/kexec_load_disabled", []byte("1\n"))
	for method, want := range map[settings.RebootMethod]string{
		settings.RebootAuto:     "policy stay, else by an ordinary reboot; not without a reboot, because only an initramfs can do that, on a first boot; not by kexec, because kexec is switched off",
		settings.RebootFirmware: "",
	} {
		m := newMachine(t, h)
		m.RebootMethod = method
		r := day2.Rebase{Machine: m, Pinning: management(t, "0-1")}
		plan, err := r.Plan(t.Context(), day2.RunOptions{})
		must(t, err)
		if notes := strings.Join(plan.Notes, "; "); !strings.Contains(notes, want) || want == "" && strings.Contains(notes, "is entered") {
			t.Errorf("%s: notes %q, want %q", method, notes, want)
		}
	}
}

// TestPlanOfFallback: if fallback=auto has the new system entered only once, a plan foresees no way that keeps the
// kernel, neither for a first boot nor for a change by hand. Where the setting has no effect, it does.
func TestPlanOfFallback(t *testing.T) {
	const excluded = "not by a soft reboot, because the new system is entered only once"
	for name, able := range map[string]bool{"with a boot loader that can": true, "with one that cannot": false} {
		t.Run(name, func(t *testing.T) {
			h := newGuarded(t)
			h.AllowSoftReboots()
			h.Write("/proc/sys/kernel/kexec_load_disabled", []byte("1\n"))
			if !able {
				h.Write(loaderFeatures, nil)
			}
			m := h.newMachine()
			m.RebootMethod = settings.RebootAuto
			b := firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath}
			first, err := b.Plan(t.Context())
			must(t, err)
			r := day2.Rebase{Machine: m, Pinning: management(t, "0-1")}
			byHand, err := r.Plan(t.Context(), day2.RunOptions{})
			must(t, err)
			for _, plan := range []pivot.Plan{first, byHand} {
				if notes := strings.Join(plan.Notes, "; "); strings.Contains(notes, excluded) != able {
					t.Errorf("notes %q, want that a soft reboot is excluded: %v", notes, able)
				}
			}
			if h.Reboots != 0 || len(h.asked) != 0 {
				t.Errorf("a plan has asked %q", h.asked)
			}
		})
	}
}

// TestSoftMethodBlocked: an inhibitor delays a soft reboot, as it does any other.
func TestSoftMethodBlocked(t *testing.T) {
	h := hostdir.New(t)
	h.AllowSoftReboots()
	m := newMachine(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tries := 0
	m.Host.Softly = func(context.Context) error {
		if tries++; tries < 3 {
			return fault.New(fault.Unavailable, "a backup runs")
		}
		cancel()
		return nil
	}
	r := day2.Rebase{Machine: m, Pinning: management(t, "0-1"), Reboot: true}
	m.RebootMethod = settings.RebootSoft
	_, err := r.Run(ctx, day2.RunOptions{})
	must(t, err)
	if tries != 3 || h.Reboots != 0 || !h.SoftPrepared() {
		t.Errorf("%d tries, %d reboots, prepared %v", tries, h.Reboots, h.SoftPrepared())
	}
}

// TestSoftMethodNotForTrials (P59): a system on trial is never entered by a soft reboot, after which a power cycle
// would not go back.
func TestSoftMethodNotForTrials(t *testing.T) {
	for method, ways := range map[settings.RebootMethod]string{settings.RebootSoft: "reboot", settings.RebootAuto: "kexec"} {
		h := newTried(t)
		h.AllowSoftReboots()
		got := rebase(t, h.Host, day2.Rebase{Machine: trying(&machine.Machine{}, tenMinutes), Pinning: management(t, "0-1")}, method, nil)
		if strings.Join(got.ways, " ") != ways || !strings.Contains(got.notes, "not by a soft reboot, because the new system is entered only once") {
			t.Errorf("%s: left by %q, notes %s", method, got.ways, got.notes)
		}
	}
}
