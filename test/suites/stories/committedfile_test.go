package stories_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/internal/host"
	"machine-pivot/internal/machineconfig"
	systemdunits "machine-pivot/systemd-units"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/rpmostree"
)

// expectRequest checks which files of a first boot the ith deployment has, by the ends of their names.
func expectRequest(t *testing.T, h *hostdir.Host, i int, want ...string) {
	t.Helper()
	all, err := h.Sysroot().Deployments()
	must(t, err)
	found, err := filepath.Glob(filepath.Join(all[i].Path, firstboot.EncapsulatedPath+"*"))
	must(t, err)
	for j := range found {
		found[j] = strings.TrimPrefix(filepath.Base(found[j]), filepath.Base(machineconfig.EncapsulatedPath))
	}
	if !slices.Equal(found, want) {
		t.Errorf("deployment %s has %q, want %q", all[i].ID(), found, want)
	}
}

// TestFileOfTheCommitted: others take the absence of the encapsulated MachineConfig for the end of the first boot, before
// the network. So the system that is committed starts without it, by each engine, and still completes the first boot; the
// old system keeps it.
func TestFileOfTheCommitted(t *testing.T) {
	for _, engine := range []string{"ostree", "rpm-ostree", "initramfs"} {
		t.Run(engine, func(t *testing.T) {
			h := newHost(t)
			h.InstallRpmOstree(rpmostree.Control{Version: "2024.5"})
			must(t, os.Chmod(h.Path(machineconfig.EncapsulatedPath), 0o600))
			asked := h.Read(machineconfig.EncapsulatedPath)
			var err error
			if engine == "initramfs" {
				_, err = bootEarly(t, h, &place{})
			} else {
				_, err = bootWith(t, h, engine)
			}
			must(t, err)
			expectRequest(t, h, 0, ".committed")
			expectRequest(t, h, 1, "")
			h.Boot()
			if info, err := os.Stat(h.Path(machineconfig.CommittedPath)); err != nil || info.Mode() != 0o600 || string(h.Read(machineconfig.CommittedPath)) != string(asked) {
				t.Fatalf("the new system has %v, %v", info, err)
			}
			if _, _, err := apply(t, h, "  kernelArguments: [a=1]\n"); err == nil || !strings.Contains(err.Error(), machineconfig.CommittedPath) {
				t.Errorf("applied before the first boot is over: %v", err)
			}
			s, err := newMachine(t, h).Status(t.Context())
			if err != nil || s.MachineConfig == nil || s.MachineConfig.Current != nil || s.MachineConfig.Desired == nil {
				t.Errorf("the status names %+v, %v", s.MachineConfig, err)
			}
			must(t, boot(t, h))
			expectNew(t, h)
			expectClosed(t, h)
			expectRequest(t, h, 0, ".bak")
			expectRequest(t, h, 1, "")
			expectStatus(t, h)
			if h.Reboots != 1 {
				t.Errorf("%d reboots", h.Reboots)
			}
			h.BootEntry(1)
			expectHeld(t, h, 1)
		})
	}
}

// TestFileAtTarget: a machine that is what was asked for keeps its system, so the file is renamed there.
func TestFileAtTarget(t *testing.T) {
	h := arrived(t)
	ask(t, h)
	must(t, boot(t, h))
	expectRequest(t, h, 0, ".bak")
	if h.Reboots != 1 {
		t.Errorf("%d reboots", h.Reboots)
	}
}

// TestFileOfAnOlderPivot: where the new system's unit does not know pivot's own name, or is masked, the file stays. So
// the first boot does not count as complete before that is proven.
func TestFileOfAnOlderPivot(t *testing.T) {
	older := strings.Replace("[Unit]\nConditionPathExists=FILE\n", "FILE", machineconfig.EncapsulatedPath, 1)
	for name, put := range map[string]func(t *testing.T, h *hostdir.Host){
		"in the image": func(t *testing.T, h *hostdir.Host) {
			h.PutIntoNext(map[string]string{host.UnitInImage(systemdunits.FirstBoot): older})
			h.Serve(h.NativeImage())
			ask(t, h)
		},
		"in /etc": func(_ *testing.T, h *hostdir.Host) { h.Write(host.UnitInEtc(systemdunits.FirstBoot), []byte(older)) },
		"masked": func(t *testing.T, h *hostdir.Host) {
			h.Write(host.UnitInEtc("x"), nil)
			must(t, os.Symlink("/dev/null", h.Path(host.UnitInEtc(systemdunits.FirstBoot))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			put(t, h)
			must(t, boot(t, h))
			expectRequest(t, h, 0, "")
			h.Boot()
			must(t, boot(t, h))
			expectClosed(t, h)
		})
	}
}

// TestFileOfANewerRequest: a file with Ignition's name beside pivot's own, as of an administrator who has corrected it
// there, is the one that counts. Both are removed when the first boot is closed.
func TestFileOfANewerRequest(t *testing.T) {
	h := newHost(t)
	must(t, boot(t, h))
	h.Boot()
	h.Write(machineconfig.EncapsulatedPath, []byte(strings.Replace(string(h.Read(machineconfig.CommittedPath)), "nosmt ", "nosmt new=1 ", 1)))
	must(t, boot(t, h))
	expectRequest(t, h, 0, ".committed")
	h.Boot()
	must(t, boot(t, h))
	expectClosed(t, h)
	expectRequest(t, h, 0, ".bak")
	if !strings.Contains(h.Options(), "new=1") {
		t.Errorf("options %q", h.Options())
	}
	ask(t, h)
	h.Write(machineconfig.CommittedPath, []byte("{}"))
	must(t, boot(t, h))
	expectRequest(t, h, 0, ".bak")
}

// TestFileAfterRollback: a rollback before the proof closes the first boot in the system that it leads to, and one that
// leads back closes it in the new one.
func TestFileAfterRollback(t *testing.T) {
	h := newHost(t)
	must(t, boot(t, h))
	h.Boot()
	must(t, rollback(t, h))
	expectRequest(t, h, 0, ".bak")
	expectRequest(t, h, 1, ".committed")
	h.Boot()
	must(t, boot(t, h))
	expectOld(t, h)
	must(t, rollback(t, h))
	expectRequest(t, h, 0, ".bak")
	h.Boot()
	must(t, boot(t, h))
	expectStatus(t, h)
	if h.Version() != "B.2" {
		t.Errorf("version %s", h.Version())
	}
}

// TestFileAfterFallback: the old system finds the first boot open, as often as the boot loader falls back to it.
func TestFileAfterFallback(t *testing.T) {
	h := newGuarded(t)
	for attempt := range 2 {
		must(t, h.bootGuarded())
		expectRequest(t, h.Host, 0, "")
		expectRequest(t, h.Host, 1, ".committed")
		h.expectOnce(attempt + 1)
		h.Boot()
	}
	must(t, h.bootGuarded())
	h.enterNew()
	must(t, h.bootGuarded())
	expectRequest(t, h.Host, 0, ".bak")
	expectRequest(t, h.Host, 1, "")
}
