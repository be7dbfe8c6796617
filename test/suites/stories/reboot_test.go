package stories_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// enter runs the first boot until it has requested the reboot, and returns its notes. Each try
// of kexec returns the next error in tries; without one it succeeds.
func enter(t *testing.T, h *hostdir.Host, method settings.RebootMethod, tries ...error) (notes []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reboot, kexec := h.Reboot, h.Kexec
	defer func() { h.Reboot, h.Kexec = reboot, kexec }()
	h.Reboot = func(ctx context.Context) error { cancel(); return reboot(ctx) }
	h.Kexec = func(ctx context.Context, next host.Kernel) error {
		if len(tries) > 0 {
			err := tries[0]
			tries = tries[1:]
			return err
		}
		cancel()
		return kexec(ctx, next)
	}
	m := newMachine(t, h)
	m.RebootMethod = method
	m.Progress.Emit = func(e pivot.Event) {
		if e.Kind == pivot.EventNoted {
			notes = append(notes, e.Message)
		}
	}
	b := firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath}
	if err := b.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return notes
}

// TestKexec (P46): with kexec the next boot starts without the firmware if that is wanted
// and safe, else through it, and the reason is noted. The proof is the same.
func TestKexec(t *testing.T) {
	h := newHost(t)
	h.Write(settings.Path, []byte("reboot-method=kexec\n"))
	const disabled = "/proc/sys/kernel/kexec_load_disabled"
	for _, c := range []struct {
		name   string
		method settings.RebootMethod
		tries  []error // of kexec
		file   string  // a file of the host to set to "1"
		kexec  bool
		why    string // noted where kexec was wanted
	}{
		{name: "as the settings say", kexec: true},
		{name: "the command line wins", method: settings.RebootFirmware},
		{name: "blocked for a while", tries: []error{fault.New(fault.Unavailable, "a backup runs")}, kexec: true},
		{name: "the kernel refuses", tries: []error{errors.New("operation not permitted")}, why: "operation not permitted"},
		{name: "switched off", file: disabled, why: "kexec_load_disabled"},
	} {
		// For all cases but the first everything is committed, and only the reboot is missing.
		reboots, kexecs := h.Reboots, len(h.Kexecs)
		if c.file != "" {
			h.Write(c.file, []byte("1\n"))
		}
		notes := enter(t, h, c.method, c.tries...)
		if asked := len(h.Kexecs) > kexecs; asked != c.kexec || (h.Reboots > reboots) == asked {
			t.Errorf("%s: by kexec: %v, by reboot: %v", c.name, asked, h.Reboots > reboots)
		}
		told := slices.ContainsFunc(notes, func(n string) bool {
			return strings.Contains(n, "not by kexec") && strings.Contains(n, c.why)
		})
		if told != (c.why != "") {
			t.Errorf("%s: notes %q, want the reason %q", c.name, notes, c.why)
		}
	}
	next := h.Kexecs[0]
	h.Boot()
	if want := strings.Replace(h.Options(), "$ignition_firstboot ", "", 1); next.Cmdline != want {
		t.Errorf("kernel started with %q, want %q", next.Cmdline, want)
	}
	initramfs, err := os.ReadFile(next.Initrd)
	if _, kerr := os.Stat(next.Image); kerr != nil || err != nil || string(initramfs) != "initramfs B.2" {
		t.Errorf("started %+v: %v, initramfs %q, %v", next, kerr, initramfs, err)
	}
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	expectNew(t, h)
	expectClosed(t, h)
}

// TestModes (P45): with mode off nothing happens. An invalid setting stops the first boot
// before it changes anything.
func TestModes(t *testing.T) {
	h := newHost(t)
	h.Write(settings.Path, []byte("mode=off\n"))
	requests := h.Registry.Requests()
	expectIdle := func() {
		t.Helper()
		if h.Reboots != 0 || len(h.Ostree.Calls) != 0 || h.Registry.Requests() != requests || h.Read("/var/lib/pivot/journal.json") != nil {
			t.Errorf("%d reboots, calls %v, %d requests", h.Reboots, h.Ostree.Calls, h.Registry.Requests()-requests)
		}
	}
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	expectIdle()
	h.Write(settings.Path, []byte("mode=of\nreboot-method=fast\n"))
	err := boot(t, h)
	if fault.KindOf(err) != fault.BadInput || !strings.Contains(err.Error(), "line 1") || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("error %v", err)
	}
	expectIdle()
	// The mode does not apply to a pivot by hand.
	h.Write(settings.Path, []byte("mode=off\n"))
	r := day2.Rebase{Machine: newMachine(t, h), Append: []string{"loglevel=7"}}
	if changed, err := r.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
		t.Errorf("by hand: changed %v, %v", changed, err)
	}
}

// TestRebootSaysInto: the reboot names the next system, also if no image was asked for.
func TestRebootSaysInto(t *testing.T) {
	h := hostdir.New(t)
	for image, want := range map[string]string{"": "a new deployment of the same image", h.Image: h.Image + " (B.2)"} {
		ctx, cancel := context.WithCancel(t.Context())
		h.Reboot = func(context.Context) error { cancel(); return nil }
		m, said := newMachine(t, h), ""
		m.Progress.Emit = func(e pivot.Event) {
			if e.Kind == pivot.EventBegan && e.Step == pivot.StepReboot {
				said = e.Message
			}
		}
		r := day2.Rebase{Machine: m, Image: image, Append: []string{"quiet"}, Reboot: true}
		if _, err := r.Run(ctx, day2.RunOptions{}); err != nil || said != "rebooting into "+want {
			t.Errorf("image %q: it says %q, %v", image, said, err)
		}
		cancel()
	}
}
