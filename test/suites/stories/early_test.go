package stories_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/pinning"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/hostdir"
)

// place is an initramfs with mounted file systems. It can be made to fail.
type place struct {
	*initramfs.Initramfs
	mount, network error
	networked      int // how often Network was called
}

func (p *place) Mount() error                  { return p.mount }
func (p *place) Network(context.Context) error { p.networked++; return p.network }

// bootEarly runs the first boot in the initramfs once.
func bootEarly(t *testing.T, h *hostdir.Host, p *place) (notes string, err error) {
	t.Helper()
	p.Initramfs = initramfs.New(h.Root)
	notes, _, err = runEarly(t, h, p)
	return notes, err
}

// runEarly runs the first boot in an initramfs once.
func runEarly(t *testing.T, h *hostdir.Host, early firstboot.Early) (notes string, outcome machine.Outcome, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reboot, kexec := h.Reboot, h.Kexec
	h.Reboot = func(ctx context.Context) error { cancel(); return reboot(ctx) }
	h.Kexec = func(ctx context.Context, next host.Kernel) error { cancel(); return kexec(ctx, next) }
	defer func() { h.Reboot, h.Kexec = reboot, kexec }()
	m := newMachine(t, h)
	m.Progress.Emit = func(e pivot.Event) {
		notes += e.Message + "\n"
		if e.Journal.Phase == "" {
			t.Errorf("%q is told in no phase", e.Message)
		}
	}
	m.Place = firstboot.Initramfs{Early: early, Disk: h.Disk}
	if err := m.UseEngine("auto"); err != nil {
		t.Fatal(err)
	}
	b := firstboot.FirstBoot{Machine: m, File: firstboot.EncapsulatedPath}
	err = b.Run(ctx)
	return notes, m.Report().Outcome, err
}

// TestEarly (P1) is a complete first boot from the initramfs: one reboot, before which
// Ignition's part is closed too. The started system proves the result.
func TestEarly(t *testing.T) {
	h := newHost(t)
	h.Write("/boot/ignition.firstboot", nil)
	h.Write("/boot/ignition/config.ign", []byte("{}"))
	p := &place{}
	if _, err := bootEarly(t, h, p); err != nil {
		t.Fatal(err)
	}
	expectOld(t, h)
	if h.Reboots != 1 || p.networked == 0 || !slices.Equal(h.Ostree.Calls, []string{"deploy"}) {
		t.Errorf("%d reboots, network asked for %d times, calls %v", h.Reboots, p.networked, h.Ostree.Calls)
	}
	for _, path := range []string{"/boot/ignition.firstboot", "/boot/ignition"} {
		if _, err := os.Lstat(h.Path(path)); err == nil {
			t.Errorf("%s is still there", path)
		}
	}

	h.Boot()
	if notes, err := bootEarly(t, h, p); err != nil || !strings.Contains(notes, "stepping aside for the started system: the machine is what was asked for") {
		t.Errorf("the second boot's initramfs: %v\n%s", err, notes)
	}
	if h.Read(machineconfig.CommittedPath) == nil {
		t.Error("the initramfs closed the first boot")
	}
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	expectNew(t, h)
	expectClosed(t, h)
	expectAccount(t, h)
	if h.Reboots != 1 {
		t.Errorf("%d reboots", h.Reboots)
	}
}

// TestEarlyLabels: with SELinux the new deployment becomes the default only after its files
// are labeled. What this boot writes before and after the commit has labels too.
func TestEarlyLabels(t *testing.T) {
	const etc, state = "system_u:object_r:etc_t:s0", "system_u:object_r:var_lib_t:s0"
	h := newHost(t)
	h.Policy("/etc(/.*)? "+etc, "/var/lib(/.*)? "+state)
	h.Ostree.Version = hostdir.LockInState
	if notes, err := bootEarly(t, h, &place{}); err != nil || h.Reboots != 1 || !slices.Equal(h.Ostree.Calls, []string{"deploy", "set-default"}) {
		t.Fatalf("%v, %d reboots, calls %v:\n%s", err, h.Reboots, h.Ostree.Calls, notes)
	}
	h.Boot()
	for name, want := range map[string]string{
		machineconfig.CommittedPath: etc, pinning.KubeletPath: etc, pivot.StateDir: state, pivot.StateDir + "/journal.json": state,
	} {
		if label, err := hostfiles.LabelOf(h.Path(name)); label != want {
			t.Errorf("%s has the label %q (%v), want %q", name, label, err, want)
		}
	}
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	expectNew(t, h)
}

// TestEarlyNeedsNoNetwork: without an image to fetch no network is needed.
func TestEarlyNeedsNoNetwork(t *testing.T) {
	h := hostdir.New(t)
	h.Write(firstboot.EncapsulatedPath, []byte(`{"spec":{"kernelArguments":["nosmt"],"fips":false}}`))
	p := &place{network: errors.New("there is none")}
	if notes, err := bootEarly(t, h, p); err != nil || h.Reboots != 1 || p.networked != 0 {
		t.Errorf("%v, %d reboots, network asked for %d times:\n%s", err, h.Reboots, p.networked, notes)
	}
	h.Boot()
	if h.Version() != "A.1" || !strings.HasSuffix(h.Options(), " nosmt") {
		t.Errorf("version %s, options %q", h.Version(), h.Options())
	}
}

// TestEarlyStepsAside (P42): if the initramfs cannot do the work, the started system does it, still
// with one reboot.
func TestEarlyStepsAside(t *testing.T) {
	later := func(text string) error { return fault.New(fault.Later, "%s", text) }
	for _, c := range []struct {
		name    string
		place   place
		prepare func(*hostdir.Host)
		mend    func(*hostdir.Host) // removes the obstacle for the started system
		want    string
	}{
		{"chosen", place{}, func(h *hostdir.Host) { h.Write("/etc/pivot/firstboot.conf", []byte("mode=system\n")) }, nil, "pivot.mode is system"},
		{"no boot entries", place{mount: later("no boot entries")}, nil, nil, "no boot entries"},
		{"no network", place{network: later("no default route")}, nil, nil, "no default route"},
		{"SELinux with an old libostree", place{}, func(h *hostdir.Host) { h.Policy("/etc(/.*)? system_u:object_r:etc_t:s0") }, nil, "is too old to have the new system's files labelled"},
		{"zipl", place{}, func(h *hostdir.Host) { config(h, "bootloader=none", "bootloader=zipl") },
			func(h *hostdir.Host) { config(h, "bootloader=zipl", "bootloader=none") }, "boot loader is zipl"},
		{"registry down", place{}, func(h *hostdir.Host) { _ = h.Registry.SetDown(true) },
			func(h *hostdir.Host) { _ = h.Registry.SetDown(false) }, "gave up after"},
		{"unknown authority", place{}, func(h *hostdir.Host) {
			_ = os.Rename(h.Path("/etc/containers/certs.d"), h.Path("/etc/containers/later"))
		},
			func(h *hostdir.Host) {
				_ = os.Rename(h.Path("/etc/containers/later"), h.Path("/etc/containers/certs.d"))
			}, "unknown authority"},
		{"somebody holds the lock", place{}, nil, nil, "holds the lock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 4)
			h := newHost(t)
			if c.prepare != nil {
				c.prepare(h)
			}
			unlock := func() {}
			if strings.Contains(c.want, "lock") {
				unlock = h.Lock()
			}
			notes, err := bootEarly(t, h, &c.place)
			if err != nil || h.Reboots != 0 || !strings.Contains(notes, "stepping aside for the started system: ") || !strings.Contains(notes, c.want) {
				t.Errorf("%v, %d reboots, want %q:\n%s", err, h.Reboots, c.want, notes)
			}
			unlock()
			if c.mend != nil {
				c.mend(h)
			}
			if err := boot(t, h); err != nil {
				t.Fatal(err)
			}
			h.Boot()
			expectNew(t, h)
			if h.Reboots != 1 {
				t.Errorf("%d reboots", h.Reboots)
			}
		})
	}
}

// TestEarlyLeaves: the initramfs leaves to the started system what only another engine, or
// another boot, can do.
func TestEarlyLeaves(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*hostdir.Host)
		want    string
	}{
		{"somebody went back", func(h *hostdir.Host) {
			finish(t, h)
			h.Reboots, h.Ostree.Calls = 0, nil
			h.BootEntry(1)
		}, "somebody went back"},
		{"layered packages", func(h *hostdir.Host) { h.Layer("strace;") }, "layered"},
		{"no root= yet", func(h *hostdir.Host) { entry(h, " root=LABEL=root", "") }, "no root= yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			c.prepare(h)
			notes, err := bootEarly(t, h, &place{})
			if err != nil || h.Reboots != 0 || len(h.Ostree.Calls) != 0 || !strings.Contains(notes, c.want) {
				t.Errorf("%v, %d reboots, calls %v, want %q:\n%s", err, h.Reboots, h.Ostree.Calls, c.want, notes)
			}
		})
	}
}

// TestEarlyStops: an error that the started system would have too stops the boot, or is left
// to the started system to report, as the administrator chooses.
func TestEarlyStops(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*hostdir.Host)
		kind    fault.Kind
	}{
		{"bad MachineConfig", func(h *hostdir.Host) { h.Write(firstboot.EncapsulatedPath, []byte(`{"spec":{"fips":"no"}}`)) }, fault.BadInput},
		{"FIPS mismatch", func(h *hostdir.Host) { h.Write("/proc/sys/crypto/fips_enabled", []byte("1\n")) }, fault.Refused},
		{"policy", func(h *hostdir.Host) {
			h.Write("/etc/containers/policy.json", []byte(`{"default":[{"type":"reject"}]}`))
		}, fault.Refused},
		{"bad setting", func(h *hostdir.Host) { cmdline(h, " pivot.mode=maybe") }, fault.BadInput},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			c.prepare(h)
			if _, err := bootEarly(t, h, &place{}); fault.KindOf(err) != c.kind {
				t.Errorf("error %v", err)
			}
			cmdline(h, " pivot.on-failure=system")
			notes, err := bootEarly(t, h, &place{})
			if err != nil || !strings.Contains(notes, "stepping aside") {
				t.Errorf("to be left to the system: %v\n%s", err, notes)
			}
			if h.Reboots != 0 {
				t.Errorf("%d reboots", h.Reboots)
			}
		})
	}
}

// TestEarlyCommitFails: if the deployment fails with an unexpected error, the started system
// tries again. Ignition's stamp is gone by then, so the unit that removes it has a condition, for this boot.
func TestEarlyCommitFails(t *testing.T) {
	const stamp, dropIn = "/boot/ignition.firstboot", "/run/systemd/system/coreos-ignition-firstboot-complete.service.d/50-pivot.conf"
	h := newHost(t)
	h.Write(stamp, nil)
	h.Ostree.Fail = func(int, bool) error { return errors.New("error: no bubblewrap here") }
	notes, err := bootEarly(t, h, &place{})
	if err != nil || h.Reboots != 0 || !strings.Contains(notes, "stepping aside for the started system: cannot deploy") {
		t.Errorf("%v, %d reboots:\n%s", err, h.Reboots, notes)
	}
	if text := string(h.Read(dropIn)); h.Read(stamp) != nil || !strings.Contains(text, "\nConditionPathExists="+stamp+"\n") {
		t.Errorf("without the stamp, the old system has the drop-in %q", text)
	}
	h.Ostree.Fail = nil
	if err := boot(t, h); err != nil {
		t.Fatal(err)
	}
	h.Boot()
	expectNew(t, h)
	if h.Read(dropIn) != nil {
		t.Error("the drop-in is there in the next boot, too")
	}
}

func cmdline(h *hostdir.Host, more string) {
	h.Write("/proc/cmdline", append([]byte(strings.TrimSpace(string(h.Read("/proc/cmdline")))), more...))
}

func config(h *hostdir.Host, from, to string) {
	const path = "/sysroot/ostree/repo/config"
	h.Write(path, []byte(strings.Replace(string(h.Read(path)), from, to, 1)))
}

// entry replaces text in all boot entries.
func entry(h *hostdir.Host, from, to string) {
	files, _ := filepath.Glob(h.Path("/boot/loader/entries/*.conf"))
	for _, file := range files {
		path := strings.TrimPrefix(file, h.Root)
		h.Write(path, []byte(strings.Replace(string(h.Read(path)), from, to, 1)))
	}
}
