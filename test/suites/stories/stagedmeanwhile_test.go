package stories_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/day2"
	"machine-pivot/day2/trial"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/rpmostree"
)

// blockedOnce has an inhibitor block the first request to leave the system, by whatever way; meanwhile is called then.
// The returned context ends with the first request that is not blocked, and ways has all requests, in order.
func blockedOnce(t *testing.T, m *machine.Machine, meanwhile func(request int)) (ctx context.Context, ways *[]string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ways = new([]string)
	request := func(way string) error {
		*ways = append(*ways, way)
		if meanwhile(len(*ways)); len(*ways) == 1 {
			return fault.New(fault.Unavailable, "a backup runs")
		}
		cancel()
		return nil
	}
	changed := *m.Host
	changed.Softly = func(context.Context) error { return request("soft") }
	changed.Kexec = func(_ context.Context, next host.Kernel) error { return request("kexec " + next.Cmdline) }
	changed.Reboot = func(context.Context) error { return request("reboot") }
	m.Host = &changed
	return ctx, ways
}

// TestStagedMeanwhile: if another program stages a deployment while a reboot is blocked, the shutdown replaces what was
// committed by it. So nothing is started past the boot loader by an entry that would be gone: an ordinary reboot starts
// what is staged. What is locked stays where it is.
func TestStagedMeanwhile(t *testing.T) {
	for _, c := range []struct {
		method settings.RebootMethod
		locked bool
		by     string // the first way
		next   string // the second, after the way that is not taken
	}{
		{method: settings.RebootKexec, by: "kexec", next: "reboot"},
		{method: settings.RebootSoft, by: "soft", next: "reboot"},
		{method: settings.RebootAuto, by: "soft", next: "reboot"},
		{method: settings.RebootKexec, locked: true, by: "kexec", next: "kexec"},
		{method: settings.RebootSoft, locked: true, by: "soft", next: "soft"},
	} {
		t.Run(string(c.method)+map[bool]string{true: ", locked"}[c.locked], func(t *testing.T) {
			h := hostdir.New(t)
			h.AllowSoftReboots()
			h.InstallRpmOstree(rpmostree.Control{})
			m, notes := newMachine(t, h), ""
			m.Progress.Emit = func(e pivot.Event) { notes += e.Message + "\n" }
			m.RebootMethod = c.method
			ctx, ways := blockedOnce(t, m, func(request int) {
				if request > 1 {
					return
				}
				rpmOstree(t, h, "kargs", "--append=foo=1")
				if c.locked {
					must(t, os.WriteFile(h.Path("/run/ostree/staged-deployment-locked"), nil, 0o600))
				}
			})
			r := day2.Rebase{Machine: m, Pinning: management(t, "0-1"), Reboot: true}
			_, err := r.Run(ctx, day2.RunOptions{})
			must(t, err)
			if len(*ways) != 2 || !strings.HasPrefix((*ways)[0], c.by) || !strings.HasPrefix((*ways)[1], c.next) {
				t.Fatalf("asked for %q, notes:\n%s", *ways, notes)
			}
			if said := strings.Contains(notes, "is staged: the shutdown makes it the next boot"); said != (c.next == "reboot") || h.SoftPrepared() != (c.next == "soft") {
				t.Errorf("said %v, a soft reboot is prepared: %v, notes:\n%s", said, h.SoftPrepared(), notes)
			}
			if c.next == "reboot" {
				h.Shutdown()
				if !strings.Contains(h.Options(), "foo=1") {
					t.Errorf("the next boot has the arguments %q, and not what was staged", h.Options())
				}
			}
		})
	}
}

// TestTryEntriesMeanwhile: the boot entry of a system on trial is read when the machine is left, not at the first try.
// Meanwhile another program may have written all entries under other names.
func TestTryEntriesMeanwhile(t *testing.T) {
	for _, kexec := range []bool{true, false} {
		h := newTried(t)
		if kexec {
			h.Write(settings.Path, []byte("reboot-method=kexec\n"))
		} else {
			h.oneShot()
		}
		m := h.newMachine()
		entry := func() ostree.BootEntry {
			all, err := h.Sysroot().Deployments()
			must(t, err)
			return all[slices.IndexFunc(all, func(d ostree.Deployment) bool { return d.ID() == h.trial().New })].Entry
		}
		var before ostree.BootEntry
		ctx, ways := blockedOnce(t, m, func(request int) {
			if request == 1 {
				before = entry()
				h.deployMore()
			}
		})
		r := day2.Rebase{Machine: trying(m, tenMinutes), Image: h.Image, Reboot: true}
		_, err := r.Run(ctx, day2.RunOptions{})
		must(t, err)
		now := entry()
		if now.File == before.File || now.Ostree() == before.Ostree() {
			t.Fatalf("the other program has not renamed the entry: %s, %s", now.File, now.Ostree())
		}
		last := (*ways)[len(*ways)-1]
		if kexec && !strings.Contains(last, "ostree="+now.Ostree()) {
			t.Errorf("left by %q, want %s", last, now.Ostree())
		}
		if asked := slices.DeleteFunc(h.asked, func(a string) bool { return a == "bootctl set-oneshot " }); !kexec && (len(asked) != 2 || asked[1] != "bootctl set-oneshot "+now.File) {
			t.Errorf("asked %q, want %s", asked, now.File)
		}
	}
}

// deployMore has another program make a deployment, which writes all boot entries anew.
func (h *tried) deployMore() {
	h.t.Helper()
	_, err := h.Run(h.t.Context(), "ostree", "admin", "deploy", "--retain", "--os=os", "--karg=root=LABEL=root", h.old.String())
	must(h.t, err)
}

// TestTryStagedMeanwhile: a system on trial is not entered while something is staged that the shutdown would make
// the default. It is entered when that is gone; until then the error says what to do.
func TestTryStagedMeanwhile(t *testing.T) {
	for _, kexec := range []bool{true, false} {
		h := newTried(t)
		if kexec {
			h.Write(settings.Path, []byte("reboot-method=kexec\n"))
		} else {
			h.oneShot()
		}
		m := h.newMachine()
		waits := 0
		m.Retry.Sleep = func(context.Context, time.Duration) error {
			if waits++; waits == 3 {
				_, err := h.Run(t.Context(), "ostree", "admin", "undeploy", "0")
				return err
			}
			return nil
		}
		ctx, ways := blockedOnce(t, m, func(request int) {
			if request == 1 {
				h.stage()
			}
		})
		r := day2.Rebase{Machine: trying(m, tenMinutes), Image: h.Image, Reboot: true}
		_, err := r.Run(ctx, day2.RunOptions{})
		must(t, err)
		if len(*ways) != 2 || waits != 3 {
			t.Errorf("kexec %v: left by %q after %d waits, notes:\n%s", kexec, *ways, waits, h.notes)
		}
		h.expect("A B", "committed", true)
	}
	t.Run("stays", func(t *testing.T) {
		h := newTried(t)
		h.oneShot()
		m := h.newMachine()
		m.Retry.Tries, m.Retry.Bound = 3, 0
		ctx, ways := blockedOnce(t, m, func(int) { h.stage() })
		r := day2.Rebase{Machine: trying(m, tenMinutes), Image: h.Image, Reboot: true}
		_, err := r.Run(ctx, day2.RunOptions{})
		if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), "is staged: the shutdown makes it the next boot") || !strings.Contains(fault.HintOf(err), "ostree admin undeploy 0") || len(*ways) != 1 {
			t.Errorf("%v (%s), left by %q", err, fault.HintOf(err), *ways)
		}
		h.expect("A B", "committed", true)
	})
}

// TestGoBackStagedMeanwhile: if another program stages a deployment while the reboot that leads back from a failed
// trial is blocked, the old system is the next boot all the same.
func TestGoBackStagedMeanwhile(t *testing.T) {
	h := newTried(t)
	h.oneShot()
	must(t, h.try(tenMinutes))
	h.enter()
	failed := trial.Program{Machine: h.newMachine()}
	failed.Sleep = func(context.Context, time.Duration) error { h.up += 5 * time.Minute; return nil }
	ctx, ways := blockedOnce(t, failed.Machine, func(request int) {
		if request == 1 {
			h.stage()
		}
	})
	must(t, failed.Run(ctx))
	staged, err := h.Sysroot().Staged()
	must(t, err)
	if staged != nil || !slices.Equal(*ways, []string{"reboot", "reboot"}) {
		t.Errorf("staged %v, left by %q", staged, *ways)
	}
	h.expect("A B", pivot.PhaseFailed, true)
}
