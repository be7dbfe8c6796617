package hostdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/ostree/gvariant"
	"machine-pivot/kargs"
)

// AllowSoftReboots gives the host what a soft reboot needs, whatever the next system is: a systemd that has
// them, a libostree that prepares them, and a composefs as the root.
func (h *Host) AllowSoftReboots() {
	h.t.Helper()
	h.Ostree.Version = SoftReboots
	h.Write(softUnit, nil)
	record, err := recordOf(h.Root)
	h.must(err)
	h.Write(bootedRecord, record)
}

// softUnit is systemd's unit for soft reboots.
const softUnit = "/usr/lib/systemd/system/systemd-soft-reboot.service"

// What libostree records about the running root, and about the one that a soft reboot is going to enter.
const (
	bootedRecord = "/run/ostree-booted"
	nextRecord   = "/run/ostree/nextroot-booted"
)

// recordOf returns libostree's record of a root that is a composefs with the files of a deployment's directory.
func recordOf(deployment string) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Stat(deployment, &st); err != nil {
		return nil, err
	}
	return gvariant.Encode("a{sv}", []any{
		gvariant.Tuple{"composefs", gvariant.Variant{Type: "b", Value: true}},
		gvariant.Tuple{"backing-root-device-inode", gvariant.Variant{Type: "(tt)", Value: gvariant.Tuple{st.Dev, st.Ino}}},
	})
}

// SoftReboot starts the default deployment under the running kernel, as systemd does after libostree has prepared
// that: boot ID, command line and /run stay. If libostree's stand-in has prepared it, libostree's record of the
// running root is that of the system before, until BootComplete.
func (h *Host) SoftReboot() {
	h.t.Helper()
	all, err := ostree.OpenSysroot(h.physical).Deployments()
	h.must(err)
	run, cmdline, root := h.Path("/run"), h.Read("/proc/cmdline"), all[0].Path
	record, prepared := h.Read(bootedRecord), h.SoftPrepared()
	h.soft++
	h.must(mutable(root))
	if next := filepath.Join(root, "run"); next != run {
		h.must(os.RemoveAll(next))
		h.must(os.Rename(run, next))
	}
	h.start(root)
	h.Write("/proc/cmdline", cmdline)
	if prepared {
		h.Write(bootedRecord, record)
		h.Write(softUnit, nil)
		h.must(os.RemoveAll(h.Path("/run/nextroot"))) // systemd moves it to /
	}
}

// BootComplete does what ostree-boot-complete.service does in the system that a soft reboot has entered.
func (h *Host) BootComplete() {
	h.t.Helper()
	h.must(os.Rename(h.Path(nextRecord), h.Path(bootedRecord)))
}

// prepareSoft prepares a soft reboot into the deployment with an index, as libostree does: only into one with the
// kernel, the initramfs and the kernel arguments of the running system.
func (s *Standin) prepareSoft(index string) error {
	if s.version() < SoftReboots {
		return errors.New("unknown command 'prepare-soft-reboot'")
	}
	if index == "--help" {
		return nil
	}
	all, err := s.host.Sysroot().Deployments()
	if err != nil {
		return err
	}
	booted, err := s.host.Sysroot().Booted()
	if err != nil {
		return err
	}
	i, err := strconv.Atoi(index)
	if err != nil || i >= len(all) {
		return fmt.Errorf("there is no deployment %q", index)
	}
	now := slices.IndexFunc(all, func(d ostree.Deployment) bool { return d.ID() == booted.ID() })
	if now < 0 || all[now].Entry.Linux != all[i].Entry.Linux || withoutLink(all[now]) != withoutLink(all[i]) {
		return errors.New("cannot soft reboot to deployment with different kernel state")
	}
	h := s.host
	record, err := recordOf(all[i].Path)
	return errors.Join(err, os.MkdirAll(h.Path("/run/nextroot/usr"), 0o755), os.MkdirAll(h.Path("/run/ostree"), 0o755),
		os.WriteFile(h.Path(nextRecord), record, 0o644))
}

// withoutLink returns the kernel arguments of a deployment, without those that name it.
func withoutLink(d ostree.Deployment) string {
	var kept []string
	for _, arg := range kargs.Split(d.Entry.Options) {
		if !strings.HasPrefix(arg, "ostree=") {
			kept = append(kept, arg)
		}
	}
	return strings.Join(kept, " ")
}

// SoftPrepared reports whether anything of a prepared soft reboot is there.
func (h *Host) SoftPrepared() bool {
	for _, path := range []string{"/run/nextroot", nextRecord} {
		if _, err := os.Lstat(filepath.Join(h.Root, path)); err == nil {
			return true
		}
	}
	return false
}
