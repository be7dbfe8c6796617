package stories_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/day2"
	"machine-pivot/firstboot"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// TestSameMachine (P102): if the new system has lost the machine's name, a first boot waits for it, at most 5 minutes.
// Then it reports that, and all else that others know the machine by and has changed. It is closed in each case.
func TestSameMachine(t *testing.T) {
	const lost = `the host name is "localhost"; before the reboot it was "worker-7"`
	for _, c := range []struct {
		name, before, setting string
		after                 string        // the name that the machine gets while it is waited for; "": none
		waits                 time.Duration // at least
		warned                bool
	}{
		{name: "the name comes late", before: "worker-7", after: "worker-7", waits: time.Second},
		{name: "another name comes late", before: "worker-7", after: "worker-8", waits: time.Second},
		{name: "it does not come", before: "worker-7", waits: 4*time.Minute + 55*time.Second, warned: true},
		{name: "it is not waited for", before: "worker-7", setting: "identity=warn\n", warned: true},
		{name: "it had none before", before: "localhost"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			ask(t, h)
			if c.setting != "" {
				h.Write(settings.Path, []byte(c.setting))
			}
			h.Write("/etc/machine-id", []byte("0123456789abcdef0123456789abcdef\n"))
			name(h, c.before)
			if _, err := attempt(t, h, nil); err != nil {
				t.Fatal(err)
			}
			h.Boot()
			name(h, "localhost")
			h.Write("/etc/machine-id", []byte("fedcba9876543210fedcba9876543210\n"))
			var waited time.Duration
			notes, err := attempt(t, h, func(d time.Duration) {
				if waited += d; c.after != "" {
					name(h, c.after)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if waited < c.waits || waited > 5*time.Minute || c.waits == 0 && waited > 0 {
				t.Errorf("it has waited %s, wanted %s", waited, c.waits)
			}
			status, err := newMachine(t, h).Status(t.Context())
			must(t, err)
			for where, said := range map[string]string{"the notes": notes, "the status": strings.Join(status.Notes, "\n")} {
				if strings.Contains(said, lost) != c.warned {
					t.Errorf("%s say that the name is lost: %v\n%s", where, !c.warned, said)
				}
				if !strings.Contains(said, "the machine ID is fedcba9876543210fedcba9876543210; before the reboot it was 0123456789abcdef0123456789abcdef") {
					t.Errorf("%s do not say that the machine ID has changed:\n%s", where, said)
				}
			}
			if status.Phase != pivot.PhaseDone {
				t.Errorf("phase %s", status.Phase)
			}
			expectNew(t, h)
		})
	}
}

// TestSameMachineLater (P102): the status compares the machine with what it was before the reboot of a later change, too, from
// that reboot to the next change.
func TestSameMachineLater(t *testing.T) {
	h := hostdir.New(t)
	expect := func(when string, lost bool) {
		t.Helper()
		status, err := newMachine(t, h).Status(t.Context())
		must(t, err)
		const text = `since the last change: the host name is "localhost"; before the reboot it was "worker-7"`
		if slices.Contains(status.Notes, text) != lost {
			t.Errorf("%s, the status says that the name is lost: %v; notes:\n%s", when, !lost, strings.Join(status.Notes, "\n"))
		}
	}
	change := func(to ...string) {
		t.Helper()
		r := day2.Rebase{Machine: newMachine(t, h), Append: to}
		_, err := r.Run(t.Context(), day2.RunOptions{})
		must(t, err)
	}
	name(h, "worker-7")
	change("good=1")
	name(h, "localhost")
	expect("before the reboot", false)
	change("good=1") // the next boot is that already
	h.Boot()
	name(h, "localhost")
	expect("after the reboot", true)
	change("good=1") // nothing
	expect("after nothing has changed", true)
	name(h, "worker-7")
	expect("with the name", false)
	name(h, "localhost")
	change("good=2")
	expect("after another change", false)
	h.Boot()
	name(h, "localhost")
	expect("after the reboot of that", false)
}

func name(h *hostdir.Host, name string) { h.Write("/proc/sys/kernel/hostname", []byte(name+"\n")) }

// attempt runs a first boot. slept is called instead of a wait; its failure is no note.
func attempt(t *testing.T, h *hostdir.Host, slept func(time.Duration)) (notes string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reboot := h.Reboot
	defer func() { h.Reboot = reboot }()
	h.Reboot = func(ctx context.Context) error { cancel(); return reboot(ctx) }
	m := newMachine(t, h)
	sleep := m.Retry.Sleep
	m.Retry.Sleep = func(ctx context.Context, d time.Duration) error {
		if slept != nil {
			slept(d)
		}
		return sleep(ctx, d)
	}
	m.Progress.Emit = func(e pivot.Event) { notes += e.Message + "\n" }
	b := firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath}
	return notes, b.Run(ctx)
}
