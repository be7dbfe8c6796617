package host_test

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/host"
)

const (
	entryPath  = "/boot/loader/entries/ostree-2.conf"
	deployment = "/ostree/deploy/os/deploy/4fd0000000000000000000000000000000000000000000000000000000000000.0"
	bootLink   = "/ostree/boot.1/os/4fd0/0" // leads to it
	abootPath  = deployment + "/usr/lib/ostree-boot/aboot.img"
	lockdown   = "/sys/kernel/security/lockdown"
	secureBoot = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	config     = "/usr/lib/modules/6.1.0-x/config"
	entry      = "title B\nversion 2\noptions root=LABEL=root q=\"a b\" $ignition_firstboot ostree=" + bootLink + " nosmt\n" +
		"linux /ostree/os-1/vmlinuz\ninitrd /ostree/os-1/initramfs\n"
)

// bootable returns a machine with two boot entries. files add to or replace its files.
func bootable(t *testing.T, files map[string]string) *host.Host {
	t.Helper()
	all := map[string]string{
		"/boot/loader/entries/ostree-1.conf": "version 1\noptions ostree=" + bootLink + "\nlinux /old\n",
		entryPath:                            entry,
		deployment + "/usr/lib/os-release":   "",
		path.Dir(bootLink) + "/":             "",
		"/proc/sys/kernel/osrelease":         "6.1.0-x\n",
	}
	maps.Copy(all, files)
	h := machine(t, all)
	if err := os.Symlink("../../.."+strings.TrimPrefix(deployment, "/ostree"), h.Path(bootLink)); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestNextKernel (P46): returns what GRUB would start, with the arguments that it would pass.
func TestNextKernel(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
	}{
		"the default entry":       {},
		"EFI without Secure Boot": {files: map[string]string{"/sys/firmware/efi/efivars/Boot0000-x": "", "/sys/kernel/security/lsm": "capability"}},
		// Paths in entries may be relative to the root of the host if /boot is not a separate
		// file system.
		"paths below /boot": {files: map[string]string{entryPath: strings.ReplaceAll(entry, " /ostree/os-1", " /boot/ostree/os-1")}},
		// libostree names an Android boot image in each entry.
		"no image for Android": {files: map[string]string{entryPath: entry + "aboot " + abootPath + "\nabootcfg " + abootPath + "\n"}},
		"nothing forbids it": {files: map[string]string{
			"/proc/sys/kernel/kexec_load_disabled": "0\n", lockdown: "[none] integrity confidentiality\n", secureBoot: "\x06\x00\x00\x00\x00",
		}},
		"lockdown, and the kernel checks": {files: map[string]string{
			lockdown: "none [integrity] confidentiality\n", secureBoot: "\x06\x00\x00\x00\x01", config: "CONFIG_X=y\nCONFIG_KEXEC_SIG=y\n",
		}},
		"Secure Boot, and the kernel always checks": {files: map[string]string{
			secureBoot: "\x06\x00\x00\x00\x01", config: "CONFIG_KEXEC_SIG=y\nCONFIG_KEXEC_SIG_FORCE=y\n",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := bootable(t, c.files)
			got, err := h.NextKernel()
			want := host.Kernel{
				Image: h.Path("/boot/ostree/os-1/vmlinuz"), Initrd: h.Path("/boot/ostree/os-1/initramfs"),
				Cmdline: `root=LABEL=root q="a b" ostree=` + bootLink + " nosmt",
			}
			if err != nil || got != want {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		})
	}
}

// TestNoNextKernel (P46): rejects what only a boot loader can do, and what would bypass Secure
// Boot.
func TestNoNextKernel(t *testing.T) {
	options := func(add string) map[string]string {
		return map[string]string{entryPath: strings.Replace(entry, "nosmt", add, 1)}
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		// With efi=noruntime there are no variables, and Secure Boot may be enabled.
		"EFI without variables": {map[string]string{"/sys/firmware/efi/fw_platform_size": "64\n"}, "Secure Boot is on is not known"},
		"security not mounted":  {map[string]string{"/sys/kernel/security/": ""}, "lockdown is not known"},
		"switched off":          {map[string]string{"/proc/sys/kernel/kexec_load_disabled": "1\n"}, "kernel.kexec_load_disabled"},
		"lockdown":              {map[string]string{lockdown: "none [integrity] confidentiality\n"}, "under lockdown"},
		"confidentiality": {map[string]string{lockdown: "none integrity [confidentiality]\n", config: "# CONFIG_KEXEC_SIG is not set\n"},
			"under lockdown"},
		"Secure Boot": {map[string]string{secureBoot: "\x06\x00\x00\x00\x01"}, "with Secure Boot"},
		// Without lockdown such a kernel verifies signatures but accepts unsigned kernels.
		"Secure Boot, and the kernel need not check": {map[string]string{secureBoot: "\x06\x00\x00\x00\x01", config: "CONFIG_KEXEC_SIG=y\n"},
			"with Secure Boot"},
		"Ignition is to run": {map[string]string{"/boot/ignition.firstboot": ""}, "/boot/ignition.firstboot"},
		"GRUB's variable":    {options("$tuned_params"), "$tuned_params"},
		"within an argument": {options("console=${console}"), "console=${console}"},
		"FIPS":               {options("fips=1"), "fips=1"},
		"device tree":        {map[string]string{entryPath: entry + "devicetree /a.dtb\n"}, "devicetree"},
		"directory of them":  {map[string]string{entryPath: entry + "fdtdir /dtb\n"}, "fdtdir"},
		"image for Android":  {map[string]string{entryPath: entry + "aboot " + abootPath + "\n", abootPath: "x"}, "has aboot"},
		"in /boot":           {map[string]string{entryPath: entry + "aboot /ostree/os-1/aboot.img\n", "/boot/ostree/os-1/aboot.img": "x"}, "has aboot"},
		"two initramfs":      {map[string]string{entryPath: entry + "initrd /more\n"}, "more than one initramfs"},
		"no kernel":          {map[string]string{entryPath: strings.Replace(entry, "linux", "efi", 1)}, "no kernel"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := bootable(t, c.files).NextKernel(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v; want an error with %q", got, err, c.want)
			}
		})
	}
	h := bootable(t, nil)
	if err := os.RemoveAll(filepath.Join(h.Root, "boot")); err != nil {
		t.Fatal(err)
	}
	if got, err := h.NextKernel(); err == nil {
		t.Errorf("without /boot: %+v", got)
	}
}
