package initramfs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
)

// How long the network may take to get a default route, and to have a device at
// all: by now the root's has been found.
const (
	networkTimeout = 45 * time.Second
	deviceTimeout  = 10 * time.Second
)

// manager is what brings the network up in an initramfs.
type manager struct {
	unit    string
	prepare func(*Initramfs) error // before the unit is started; may be nil
}

// managers are those that dracut puts into an initramfs. NetworkManager's units
// have these names from 1.54 on, and before.
func managers() []manager {
	return []manager{
		{"systemd-networkd.service", nil},
		{"NetworkManager-initrd.service", needNetwork},
		{"nm-initrd.service", needNetwork},
	}
}

// unitDirs are where an initramfs has its units.
func unitDirs() []string {
	return []string{"/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}
}

// Network brings the network up, unless there is a default route already, with
// what the initramfs has for it: a unit, started through systemd. Names are then
// looked up by the servers that came with the route.
func (i *Initramfs) Network(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, networkTimeout,
		later("there is no default route after %s", networkTimeout))
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer time.AfterFunc(deviceTimeout, func() {
		if !hasDevice() {
			giveUp(later("there is no network device after %s", deviceTimeout))
		}
	}).Stop()
	if !hasDefaultRoute() {
		if err := i.start(ctx); err != nil {
			return err
		}
		if err := awaitRoute(ctx); err != nil {
			return err
		}
	}
	return resolver()
}

// hasDevice reports whether there is a network device that leads anywhere.
func hasDevice() bool {
	devices, err := filepath.Glob("/sys/class/net/*/address") // not the bonding driver's file there
	return err != nil || len(devices) > 1 || len(devices) == 1 && devices[0] != "/sys/class/net/lo/address"
}

// start starts the first manager that the initramfs has.
func (i *Initramfs) start(ctx context.Context) error {
	for _, m := range managers() {
		if !hasUnit(m.unit) {
			continue
		}
		if m.prepare != nil {
			if err := m.prepare(i); err != nil {
				return err
			}
		}
		return startUnit(ctx, m.unit)
	}
	return later("the initramfs has nothing that brings a network up")
}

func hasUnit(name string) bool {
	for _, dir := range unitDirs() {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// startUnit asks systemd to start a unit; there is no message bus yet.
func startUnit(ctx context.Context, name string) error {
	conn, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return later("cannot start %s: cannot reach systemd: %w", name, err)
	}
	defer conn.Close()
	if _, err := conn.StartUnitContext(ctx, name, "replace", nil); err != nil {
		return later("cannot start %s: %w", name, err)
	}
	return nil
}

// needNetwork tells dracut's NetworkManager units, which start only where a network
// is asked for, that one is, and has the profiles made that the kernel command line
// describes; with none there a DHCP profile (nm-initrd-generator(8)).
func needNetwork(i *Initramfs) error {
	const dir = "/run/NetworkManager/initrd"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return later("cannot ask for a network: %w", err)
	}
	if err := os.WriteFile(dir+"/neednet", nil, 0o644); err != nil {
		return later("cannot ask for a network: %w", err)
	}
	if profiles, err := filepath.Glob("/run/NetworkManager/system-connections/*"); err != nil || len(profiles) > 0 {
		return err
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return later("cannot ask for a network: %w", err)
	}
	for _, generator := range []string{"/usr/libexec/nm-initrd-generator", "/usr/lib/nm-initrd-generator"} {
		if _, err := os.Stat(generator); err == nil {
			return i.Run(append([]string{generator, "--"}, append(strings.Fields(string(line)), "rd.neednet=1")...)...)
		}
	}
	return nil
}
