package stories_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/pid1"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// entersHere is an initramfs in which a committed deployment can be entered, unless it is made to fail.
type entersHere struct {
	place
	running         initramfs.Running
	unread, refused error
	requested       string // the ID of the deployment
}

func (e *entersHere) Running(context.Context) (initramfs.Running, error) {
	running := e.running
	running.Entry.Linux = "/boot/vmlinuz"
	return running, e.unread
}

func (e *entersHere) RequestEnter(_ context.Context, _ initramfs.Running, deployment string) error {
	e.requested = deployment
	return e.refused
}

// enterEarly runs the first boot in the initramfs once.
func enterEarly(t *testing.T, h *hostdir.Host, e *entersHere) (notes string, outcome machine.Outcome, err error) {
	t.Helper()
	e.Initramfs = initramfs.New(h.Root)
	return runEarly(t, h, e)
}

// entersHost returns a host with the setting for its reboot method, and with a kernel and a boot entry that have the
// requested arguments.
func entersHost(t *testing.T, method settings.RebootMethod) *hostdir.Host {
	t.Helper()
	h := newHost(t)
	h.Write(settings.Path, []byte("reboot-method="+method+"\n"))
	const arguments = ` nosmt hugepagesz=1G hugepages=4 acpi_osi="!Windows 2020"`
	h.Write("/proc/cmdline", []byte(strings.TrimSpace(string(h.Read("/proc/cmdline")))+arguments+"\n"))
	entries, err := filepath.Glob(h.Path("/boot/loader/entries/*.conf"))
	must(t, err)
	for _, entry := range entries {
		text, err := os.ReadFile(entry)
		must(t, err)
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			if strings.HasPrefix(line, "options ") {
				lines[i] += arguments
			}
		}
		must(t, os.WriteFile(entry, []byte(strings.Join(lines, "\n")), 0o644))
	}
	return h
}

// enterNext starts the default deployment in the running boot, as pivot-enter.service does. The kernel has its
// arguments already.
func enterNext(h *hostdir.Host) {
	h.SoftReboot()
	h.SoftReboots = func() (uint32, error) { return 0, nil }
	h.Write(pid1.EnteredMark, nil)
	h.Write("/proc/cmdline", []byte(h.Options()))
}

// TestEnterSystem (P96): a first boot that enters the committed system is proven and closed in the same boot, without a reboot.
func TestEnterSystem(t *testing.T) {
	for method, order := range map[settings.RebootMethod]string{
		settings.RebootEnter: "stay, else by an ordinary reboot",
		settings.RebootAuto:  "stay, else by kexec, else by an ordinary reboot; not by a soft reboot, because the system has not started",
	} {
		t.Run(string(method), func(t *testing.T) { entersSystem(t, method, order) })
	}
}

// entersSystem enters the committed system by a method, of which order is foretold.
func entersSystem(t *testing.T, method settings.RebootMethod, order string) {
	t.Helper()
	h := entersHost(t, method)
	e := &entersHere{}
	notes, outcome, err := enterEarly(t, h, e)
	if err != nil || h.Reboots+len(h.Kexecs) != 0 || outcome != machine.OutcomeEntering || !strings.Contains(notes, "the boot continues in the new system, without a reboot") {
		t.Fatalf("%v, outcome %s, %d reboots:\n%s", err, outcome, h.Reboots, notes)
	}
	if foretold := "the new system is entered without a reboot if the initramfs commits it, and kernel, initramfs and kernel arguments " + order; !strings.Contains(notes, foretold+"\n") {
		t.Errorf("no note %q in\n%s", foretold, notes)
	}
	all, err := h.Sysroot().Deployments()
	must(t, err)
	if all[0].ID() != e.requested {
		t.Errorf("it asks for %s, want the default %s", e.requested, all[0].ID())
	}
	before, err := h.Start()
	must(t, err)
	enterNext(h)
	after, err := h.Start()
	must(t, err)
	if before == after || before.Boot() != after.Boot() || !after.Entered() {
		t.Errorf("the starts %s and %s are not two of one boot", before, after)
	}
	expectStatusAt(t, h, pivot.PhaseDone)
	must(t, boot(t, h))
	expectNew(t, h)
	expectClosed(t, h)
	if h.Reboots != 0 {
		t.Errorf("%d reboots", h.Reboots)
	}
	expectStatusAt(t, h, pivot.PhaseDone)
}

// TestEnterOrReboot (P96): whatever is missing for entering ends in the next way, with the reason: what is known before
// the commit is reported before it.
func TestEnterOrReboot(t *testing.T) {
	const declined = "the new system is entered by an ordinary reboot; not without a reboot, because "
	for name, c := range map[string]struct {
		enters entersHere
		note   string
	}{
		"what runs is not known":  {entersHere{unread: errors.New("no kernel command line")}, declined + "no kernel command line"},
		"a condition was not met": {entersHere{running: initramfs.Running{BootLoader: "zipl"}}, declined + "the boot loader is zipl"},
		"a condition is not met":  {entersHere{refused: errors.New("another kernel")}, "not without a reboot but by an ordinary reboot: another kernel"},
	} {
		t.Run(name, func(t *testing.T) {
			h := entersHost(t, settings.RebootEnter)
			notes, outcome, err := enterEarly(t, h, &c.enters)
			if err != nil || h.Reboots != 1 || outcome != machine.OutcomeRebooting || !strings.Contains(notes, c.note+"\n") {
				t.Errorf("%v, outcome %s, %d reboots:\n%s", err, outcome, h.Reboots, notes)
			}
			if asked := c.enters.requested != ""; asked != (c.enters.refused != nil) {
				t.Errorf("asked for: %v", asked)
			}
			h.Boot()
			must(t, boot(t, h))
			expectNew(t, h)
		})
	}
	t.Run("other arguments", func(t *testing.T) {
		h := newHost(t)
		h.Write(settings.Path, []byte("reboot-method=enter\n"))
		e := &entersHere{}
		notes, _, err := enterEarly(t, h, e)
		if err != nil || h.Reboots != 1 || e.requested != "" || !strings.Contains(notes, declined+"the kernel arguments change\n") {
			t.Errorf("%v, %d reboots:\n%s", err, h.Reboots, notes)
		}
	})
	t.Run("auto", func(t *testing.T) {
		h := entersHost(t, settings.RebootAuto)
		notes, _, err := enterEarly(t, h, &entersHere{refused: errors.New("another kernel")})
		if err != nil || h.Reboots != 0 || len(h.Kexecs) != 1 || !strings.Contains(notes, "not without a reboot but by kexec: another kernel\n") {
			t.Errorf("%v, %d reboots, %d times kexec:\n%s", err, h.Reboots, len(h.Kexecs), notes)
		}
	})
	t.Run("in the started system", func(t *testing.T) {
		h := entersHost(t, settings.RebootEnter)
		must(t, boot(t, h))
		if h.Reboots != 1 {
			t.Errorf("%d reboots", h.Reboots)
		}
	})
}

// TestEnteredIncomplete (P96): a system that was entered, and is not what was asked for, is another attempt, as after a
// reboot.
func TestEnteredIncomplete(t *testing.T) {
	h := entersHost(t, settings.RebootEnter)
	_, _, err := enterEarly(t, h, &entersHere{})
	must(t, err)
	enterNext(h)
	h.Write(pinning.KubeletPath, []byte("changed"))
	must(t, boot(t, h))
	if journal, err := pivot.JournalIn(h.Root).Load(); err != nil || journal.Attempt != 2 || h.Reboots != 1 {
		t.Errorf("attempt %d, %d reboots, %v", journal.Attempt, h.Reboots, err)
	}
}

// TestEnterPlanned (P96): a plan says which ways are left for the first boot, and why not the others.
func TestEnterPlanned(t *testing.T) {
	other := newHost(t)
	other.Write(settings.Path, []byte("reboot-method=enter\n"))
	system := entersHost(t, settings.RebootEnter)
	system.Write(settings.Path, []byte("mode=system\nreboot-method=enter\n"))
	for want, h := range map[string]*hostdir.Host{
		"not without a reboot, because the kernel arguments change":                                     other,
		"not without a reboot, because only an initramfs can do that":                                   system,
		"without a reboot if the initramfs commits it, and kernel, initramfs and kernel arguments stay": entersHost(t, settings.RebootEnter),
	} {
		b := firstboot.FirstBoot{Machine: newMachine(t, h), File: firstboot.EncapsulatedPath}
		plan, err := b.Plan(t.Context())
		must(t, err)
		if text := strings.Join(plan.Notes, "\n"); !strings.Contains(text, want) {
			t.Errorf("notes %q, want %q", plan.Notes, want)
		}
	}
}
