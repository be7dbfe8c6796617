package initramfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/initramfs"
	"machine-pivot/test/worlds/hostdir"
)

// system returns a system with empty mount points.
func system(t *testing.T) (root, physical string) {
	t.Helper()
	h := hostdir.New(t)
	for _, dir := range []string{"sysroot", "var", "boot"} {
		must(t, os.Remove(h.Path("/"+dir)))
		must(t, os.Mkdir(h.Path("/"+dir), 0o755))
	}
	return h.Root, h.Physical()
}

// prepareRoot mounts what ostree-prepare-root mounts: a read-only sysroot, nothing at /var, and
// /boot only if it is on the same file system.
func prepareRoot(root, physical string, boot bool) error {
	readOnly := func(from, to string) error {
		return errors.Join(unix.Mount(from, to, "", unix.MS_BIND, ""), unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	}
	err := readOnly(physical, root+"/sysroot")
	if boot {
		err = errors.Join(err, readOnly(physical+"/boot", root+"/boot"))
	}
	return err
}

// TestMount: sysroot becomes writable, /var is the stateroot's, and /boot is mounted. It is what the machine names,
// else the physical root's boot with boot entries, else the file system with the usual label.
func TestMount(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		name, fstab, cmdline string
		own                  bool   // /boot is on the root's file system
		prepared             bool   // and ostree-prepare-root has mounted it
		device               string // expected device of /boot
	}{
		{"on the root's file system", "", "quiet", true, true, ""},
		{"on the root's file system, not mounted", "LABEL=root / xfs\n", "quiet", true, false, ""},
		{"kernel command line", "LABEL=other /boot ext4 defaults 0 0\n", "quiet boot=UUID=1234", false, false, "UUID=1234"},
		{"kernel command line, and old entries", "", "quiet boot=UUID=1234", true, false, "UUID=1234"},
		{"fstab", "# LABEL=no /boot\nLABEL=root / xfs\nLABEL=other /boot/ ext4 defaults 0 0\n", "quiet", false, false, "LABEL=other"},
		{"fstab, and old entries", "LABEL=other /boot ext4 defaults 0 0\n", "quiet", true, false, "LABEL=other"},
		{"label", "", "quiet", false, false, "LABEL=boot"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root, physical := system(t)
			write(t, root+"/etc/fstab", c.fstab)
			write(t, root+"/proc/cmdline", c.cmdline)
			boot := physical + "/boot" // the directory that must be mounted at /boot
			if c.device != "" {
				boot = t.TempDir()
				must(t, os.MkdirAll(boot+"/loader/entries", 0o755))
			}
			if !c.own {
				must(t, os.RemoveAll(physical+"/boot"))
				must(t, os.Mkdir(physical+"/boot", 0o755))
			}
			inNamespace(t, func() error {
				if err := prepareRoot(root, physical, c.prepared); err != nil {
					return err
				}
				var ran []string
				i := initramfs.New(root)
				i.Run = func(argv ...string) error {
					ran = argv
					return unix.Mount(boot, root+"/boot", "", unix.MS_BIND, "")
				}
				if err := i.Mount(); err != nil {
					return err
				}
				if want := []string{"mount", "-o", "rw", c.device, root + "/boot"}; c.device != "" && !slices.Equal(ran, want) || c.device == "" && ran != nil {
					t.Errorf("it ran %q", ran)
				}
				for _, path := range []string{"/var/probe", "/sysroot/ostree/probe", "/boot/probe"} {
					if err := put(root+path, "x"); err != nil {
						t.Error(err)
					}
				}
				return nil
			})
			for _, path := range []string{physical + "/ostree/deploy/os/var/probe", physical + "/ostree/probe", boot + "/probe"} {
				if _, err := os.Stat(path); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestMountFails: errors are left to the started system.
func TestMountFails(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		name, want string
		spoil      func(root, physical string)
	}{
		{"no device, and no entries on the root", "no such device", nil},
		{"another /boot", "it has no boot entries", func(root, physical string) {}},
		{"not booted", "not booted from an ostree", func(root, _ string) { _ = os.Remove(filepath.Join(root, "run/ostree-booted")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			root, physical := system(t)
			must(t, os.RemoveAll(physical+"/boot/loader"))
			inNamespace(t, func() error {
				if err := prepareRoot(root, physical, false); err != nil {
					return err
				}
				i := initramfs.New(root)
				i.Run = func(...string) error { return nil }
				if c.spoil == nil {
					i.Run = func(...string) error { return os.NewSyscallError("mount: no such device", unix.ENODEV) }
				} else {
					c.spoil(root, physical)
				}
				if err := i.Mount(); fault.KindOf(err) != fault.Later || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				return nil
			})
		})
	}
}
