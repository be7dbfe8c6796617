package initramfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
)

// Timeouts for a default route and for a network device. The timeout for a device is short,
// because the kernel has already found the device of the root file system.
const (
	networkTimeout = 45 * time.Second
	deviceTimeout  = 10 * time.Second
)

// The network units that dracut installs into an initramfs. NetworkManager's is named
// NetworkManager-initrd since 1.54, and nm-initrd before.
const networkd = "systemd-networkd.service"

func networkManagers() []string {
	return []string{"NetworkManager-initrd.service", "nm-initrd.service"}
}

// unitDirs returns the directories with the initramfs's units.
func unitDirs() []string {
	return []string{"/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}
}

// Network brings the network up with a unit of the initramfs, unless there is already a default
// route, and configures the resolver.
func (i *Initramfs) Network(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, networkTimeout,
		deferred("there is no default route after %s", networkTimeout))
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer time.AfterFunc(deviceTimeout, func() {
		if !hasDevice() {
			giveUp(deferred("there is no network device after %s", deviceTimeout))
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

// hasDevice reports whether there is a network device besides loopback.
func hasDevice() bool {
	devices, err := filepath.Glob("/sys/class/net/*/address") // /sys/class/net may also contain bonding_masters, which is no device
	return err != nil || len(devices) > 1 || len(devices) == 1 && devices[0] != "/sys/class/net/lo/address"
}

// start starts the first of the network units that exists in the initramfs.
func (i *Initramfs) start(ctx context.Context) error {
	if hasUnit(networkd) {
		return startUnit(ctx, networkd)
	}
	at := slices.IndexFunc(networkManagers(), hasUnit)
	if at < 0 {
		return deferred("nothing in the initramfs starts a network")
	}
	if err := i.needNetwork(); err != nil {
		return deferred("cannot ask for a network: %w", err)
	}
	return startUnit(ctx, networkManagers()[at])
}

func hasUnit(name string) bool {
	return slices.ContainsFunc(unitDirs(), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// startUnit asks systemd to start a unit. It does not wait for that.
func startUnit(ctx context.Context, name string) error {
	err := withSystemd(ctx, answerTimeout, func(ctx context.Context, conn *dbus.Conn) error {
		_, err := conn.StartUnitContext(ctx, name, "replace", nil)
		return err
	})
	if err != nil {
		return deferred("cannot start %s: %w", name, err)
	}
	return nil
}

// needNetwork prepares dracut's NetworkManager units, which start only if the network is
// requested. It writes the file that requests it, and generates the profiles that the kernel
// command line describes, or one for DHCP (nm-initrd-generator(8)).
func (i *Initramfs) needNetwork() error {
	const dir = "/run/NetworkManager/initrd"
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/neednet", nil, 0o644)); err != nil {
		return err
	}
	if profiles, err := filepath.Glob("/run/NetworkManager/system-connections/*"); err != nil || len(profiles) > 0 {
		return err
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	for _, generator := range []string{"/usr/libexec/nm-initrd-generator", "/usr/lib/nm-initrd-generator"} {
		if _, err := os.Stat(generator); err == nil {
			return i.Run(append([]string{generator, "--"}, append(strings.Fields(string(line)), "rd.neednet=1")...)...)
		}
	}
	return nil
}
