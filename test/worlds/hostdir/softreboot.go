package hostdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/ostree/gvariant"
	"machine-pivot/kargs"
)

// AllowSoftReboots gives the host what a soft reboot needs, whatever the next system is: a systemd that has
// them, a libostree that prepares them, and a composefs as the root.
func (h *Host) AllowSoftReboots() {
	h.t.Helper()
	h.Ostree.Version = SoftReboots
	h.Write("/usr/lib/systemd/system/systemd-soft-reboot.service", nil)
	marker, err := gvariant.Encode("a{sv}", []any{gvariant.Tuple{"composefs", gvariant.Variant{Type: "b", Value: true}}})
	h.must(err)
	h.Write("/run/ostree-booted", marker)
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
	return errors.Join(os.MkdirAll(h.Path("/run/nextroot/usr"), 0o755), os.MkdirAll(h.Path("/run/ostree"), 0o755),
		os.WriteFile(h.Path("/run/ostree/nextroot-booted"), nil, 0o644))
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
	for _, path := range []string{"/run/nextroot", "/run/ostree/nextroot-booted"} {
		if _, err := os.Lstat(filepath.Join(h.Root, path)); err == nil {
			return true
		}
	}
	return false
}
