package stories_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/test/worlds/hostdir"
)

// other is the first boot of another program: what is on the machine while it runs, and how it ends.
type other struct {
	name, unit, path, goesOn string
	end                      func(t *testing.T, path string)
}

func others() []other {
	remove := func(t *testing.T, path string) {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
	identify := func(t *testing.T, path string) {
		if err := os.WriteFile(path, []byte("3d1219c7c4c5404aaa1f6d2a48adfda4\n"), 0o644); err != nil {
			t.Error(err)
		}
	}
	return []other{
		{"Ignition's", "coreos-ignition-firstboot-complete.service", "/boot/ignition.firstboot", "", remove},
		{"Ignition's, with network arguments", "coreos-ignition-firstboot-complete.service", "/boot/ignition.firstboot", "set ignition_network_kcmdline='ip=dhcp'\n", remove},
		{"systemd's", "systemd-machine-id-commit.service", "/etc/machine-id", "uninitialized\n", identify},
	}
}

// bootBeside runs the first boot once. Each time that it waits, it calls waits with how long it has waited by then.
func bootBeside(t *testing.T, h *hostdir.Host, b firstboot.FirstBoot, waits func(waited time.Duration)) (waited time.Duration, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reboot := h.Reboot
	defer func() { h.Reboot = reboot }()
	h.Reboot = func(ctx context.Context) error { cancel(); return reboot(ctx) }
	b.Machine, b.File = newMachine(t, h), firstboot.EncapsulatedPath
	sleep := b.Machine.Retry.Sleep
	b.Machine.Retry.Sleep = func(ctx context.Context, d time.Duration) error {
		waited += d
		waits(waited)
		return sleep(ctx, d)
	}
	err = b.Run(ctx)
	return waited, err
}

// TestAwaitsFirstBootsOfOthers: a first boot commits and reboots only when those of others have ended, however long that
// takes within its limit. The new deployment inherits what they have left.
func TestAwaitsFirstBootsOfOthers(t *testing.T) {
	for _, other := range others() {
		t.Run(other.name, func(t *testing.T) {
			h := newHost(t)
			h.Write(other.path, []byte(other.goesOn))
			waited, err := bootBeside(t, h, firstboot.FirstBoot{}, func(waited time.Duration) {
				if len(h.Ostree.Calls) > 1 || h.Reboots > 0 {
					t.Errorf("after %s: calls %v, %d reboots", waited, h.Ostree.Calls, h.Reboots)
				}
				if waited > time.Minute && string(h.Read(other.path)) == other.goesOn {
					other.end(t, h.Path(other.path))
				}
			})
			if err != nil || waited < time.Minute || h.Reboots != 1 {
				t.Fatalf("waited for %s, %d reboots, %v", waited, h.Reboots, err)
			}
			h.Boot()
			if content := h.Read(other.path); content != nil && string(content) == other.goesOn {
				t.Errorf("the new system has %q in %s", content, other.path)
			}
			if err := boot(t, h); err != nil {
				t.Fatal(err)
			}
			expectNew(t, h)
			expectClosed(t, h)
		})
	}
}

// TestFirstBootOfOthersFails: if the first boot of others does not end, there is neither a commit nor a reboot, and the
// error names the unit. A later run continues.
func TestFirstBootOfOthersFails(t *testing.T) {
	for _, other := range others() {
		t.Run(other.name, func(t *testing.T) {
			h := newHost(t)
			h.Write(other.path, []byte(other.goesOn))
			waited, err := bootBeside(t, h, firstboot.FirstBoot{}, func(time.Duration) {})
			if fault.KindOf(err) != fault.Unavailable || !strings.Contains(err.Error(), other.unit) || !strings.Contains(fault.HintOf(err), other.unit) {
				t.Errorf("error %v, hint %q", err, fault.HintOf(err))
			}
			if h.Reboots != 0 || waited < time.Minute || waited > 90*time.Second {
				t.Errorf("waited for %s, %d reboots", waited, h.Reboots)
			}
			other.end(t, h.Path(other.path))
			if err := boot(t, h); err != nil || h.Reboots != 1 {
				t.Fatalf("the next run: %v, %d reboots", err, h.Reboots)
			}
			h.Boot()
			if err := boot(t, h); err != nil {
				t.Fatal(err)
			}
			expectNew(t, h)
			expectClosed(t, h)
		})
	}
}

// TestOnlyRebootIsMissing: while a first boot of others runs, what another run has committed is not entered either.
func TestOnlyRebootIsMissing(t *testing.T) {
	for _, other := range others() {
		t.Run(other.name, func(t *testing.T) {
			h := newHost(t)
			if err := run(t, h, firstboot.FirstBoot{NoReboot: true}); err != nil {
				t.Fatal(err)
			}
			h.Write(other.path, []byte(other.goesOn))
			if _, err := bootBeside(t, h, firstboot.FirstBoot{}, func(time.Duration) {}); fault.KindOf(err) != fault.Unavailable || h.Reboots != 0 {
				t.Errorf("%v, %d reboots", err, h.Reboots)
			}
		})
	}
}
