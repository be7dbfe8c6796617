package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"

	"machine-pivot/test/ignition"
	"machine-pivot/test/need"
	"machine-pivot/test/oscontainer"
	"machine-pivot/test/vm"
)

// TestHost lets "make test-host" do with systems made here what it does with real ones:
// they have real Ignition in their initramfs, and no pivot. All of its cases hold.
func TestHost(t *testing.T) {
	needMachines(t)
	// The oldest release with a libostree that "pivot rollback" can use.
	guest, err := (&vm.Builder{Log: testLog{t}}).Guest(t.Context(), vm.GuestSpec{Suite: vm.Trixie, Overlay: withIgnition(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a disk", func(t *testing.T) { testHostDisk(t, guest) })
	t.Run("a directory", func(t *testing.T) { testHostDirectory(t, guest) })
}

// testHostDisk gives it a disk with A that starts by itself. An image that is not there
// is found before anything boots.
func testHostDisk(t *testing.T, guest *vm.Guest) {
	if missing := vm.MissingGRUB(); len(missing) > 0 {
		need.Lacking(t, "cannot make a disk that starts by itself: lacking "+strings.Join(missing, ", "))
	}
	disk := "IMAGE=" + hostDisk(t, guest)
	if out, err := testHost(t, disk, "OSIMAGE=oci:"+t.TempDir()+"/none"); err == nil || !strings.Contains(out, "cannot copy") || strings.Contains(out, "===") {
		t.Errorf("with an image that is not there: %v\n%s", err, out)
	}
	out, err := testHost(t, disk, "OSIMAGE=oci:"+ociLayout(t, guest))
	checkHost(t, out, err, 2)
}

// testHostDirectory gives it B in a directory, as a checkout and as the root of a container,
// whose /etc is where it is in a system that runs. A directory without a kernel is named.
func testHostDirectory(t *testing.T, guest *vm.Guest) {
	tree := filepath.Join(t.TempDir(), "system")
	if out, err := exec.CommandContext(t.Context(), "ostree", "checkout", "--repo="+guest.BareRepo(), "--force-copy", guest.CommitB, tree).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Rename(filepath.Join(tree, "usr/etc"), filepath.Join(tree, "etc")); err != nil {
		t.Fatal(err)
	}
	if out, err := testHost(t, "IMAGE="+t.TempDir()); err == nil || !strings.Contains(out, "it has 0 files usr/lib/modules/VERSION/vmlinuz") {
		t.Errorf("with a directory that holds no system: %v\n%s", err, out)
	}
	// Reports of the guest's own would power it off.
	out, err := testHost(t, "IMAGE="+tree, "HOSTTEST=-kargs 'systemd.firstboot=off report.stay'")
	checkHost(t, out, err, 1)
}

// testHost runs "make test-host".
func testHost(t *testing.T, variables ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-s", "-C", "../..", "test-host", "BIN=" + t.TempDir()}, variables...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// checkHost wants all of some cases to have been gone through.
func checkHost(t *testing.T, out string, err error, cases int) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(out)
	if strings.Count(out, "=== ") != cases || strings.Contains(out, "NOT ") || strings.Count(out, "finds no difference") != cases {
		t.Error("not all cases were gone through")
	}
}

// hostDisk makes a disk with A that starts by itself.
func hostDisk(t *testing.T, guest *vm.Guest) string {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "real.img")
	if err := guest.Disk(t.Context(), disk, vm.DiskSpec{
		Layout: vm.Layout{SeparateBoot: true},
		// What GRUB makes of the variable is Ignition's. Reports of its own would power the guest off.
		KernelArgs: []string{"$ignition_firstboot", "ignition.platform.id=qemu", "systemd.firstboot=off", "report.stay"},
		RepoConfig: []string{"sysroot.readonly=true"},
		Files: []vm.TreeFile{
			{Path: firstBootStamp, Mode: 0o644},
			// So systemd knows the first boot, on which units are enabled by presets.
			{Path: "/etc/machine-id", Mode: 0o444, Content: []byte("uninitialized\n")},
		},
	}); err != nil {
		t.Fatal(err)
	}
	if err := vm.InstallGRUB(t.Context(), disk, vm.StateRoot+firstBootStamp); err != nil {
		t.Fatal(err)
	}
	return disk
}

// ociLayout writes B as an OCI layout, with one image.
func ociLayout(t *testing.T, guest *vm.Guest) string {
	t.Helper()
	img, err := oscontainer.Encapsulated(guest.BareRepo(), guest.CommitB, oscontainer.WithWorkDir(t.TempDir()), oscontainer.WithChunks(8))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	index, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = index.ReplaceImage(img, match.Name("os"), layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "os"}))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir + ":os"
}

// firstBootStamp is there until Ignition has run.
const firstBootStamp = "/var/ignition.firstboot"

// withIgnition are files that make a guest run Ignition on its first boot, as Fedora
// CoreOS does: with /var and the network, in the initramfs.
func withIgnition(t *testing.T) []vm.TreeFile {
	t.Helper()
	dir := filepath.Dir(ignition.Program)
	files, err := vm.TreeFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		files[i].Path = dir + f.Path
		if f.Path == "/module-setup.sh" {
			// Its own depends on curl, which is not there: the guest's network needs none.
			text, err := os.ReadFile(f.Source)
			if err != nil {
				t.Fatal(err)
			}
			files[i].Source, files[i].Content = "", []byte(strings.Replace(string(text), "echo qemu systemd url-lib network", "echo systemd guest-network", 1))
		}
	}
	const units = "/usr/lib/systemd/system/"
	const module = "/usr/lib/dracut/modules.d/40guest-ignition/"
	return append(files,
		vm.TreeFile{Path: module + "module-setup.sh", Mode: 0o755, Content: []byte(ignitionModule)},
		vm.TreeFile{Path: module + "guest-var.service", Mode: 0o644, Content: []byte(varUnit)},
		vm.TreeFile{Path: module + "files.conf", Mode: 0o644, Content: []byte(filesDropIn)},
		vm.TreeFile{Path: units + "guest-ignition-complete.service", Mode: 0o644, Content: []byte(completeUnit)},
		vm.TreeFile{Path: units + "sysinit.target.wants/guest-ignition-complete.service", Symlink: "../guest-ignition-complete.service"},
		// As Fedora has it; Debian enables whatever no preset names.
		vm.TreeFile{Path: "/usr/lib/systemd/system-preset/99-default.preset", Mode: 0o644, Content: []byte("disable *\n")},
	)
}

const (
	ignitionModule = `#!/bin/bash
check() { return 255; }
depends() { echo guest-network; }
installkernel() { instmods qemu_fw_cfg; }
install() {
	inst_multiple mount umount mkdir modprobe rm cat journalctl tail cut
	inst_simple "$moddir/guest-var.service" "$systemdsystemunitdir/guest-var.service"
	$SYSTEMCTL -q --root "$initdir" enable guest-var.service
	inst_simple "$moddir/files.conf" "$systemdsystemunitdir/ignition-files.service.d/guest.conf"
	rm -f "$initdir/usr/sbin/setfiles"
	printf '#!/bin/sh\nexec cat >/dev/null\n' >"$initdir/usr/sbin/setfiles"
	chmod 0755 "$initdir/usr/sbin/setfiles"
}
`
	varUnit = `[Unit]
Description=Mount /var for Ignition
DefaultDependencies=no
Requires=initrd-root-fs.target
After=initrd-root-fs.target
Before=ignition-files.service initrd-switch-root.target
Conflicts=initrd-switch-root.target umount.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'mount --bind /sysroot/sysroot` + vm.VarDir + ` /sysroot/var; mkdir -p /sysroot/var/usrlocal/bin'
ExecStop=/bin/umount /sysroot/var
[Install]
RequiredBy=ignition-complete.target
`
	// This Ignition labels what it has written, whether there is SELinux or not. It also logs
	// its whole config, with pivot in it: the console gets the end only.
	filesDropIn = `[Service]
ExecStartPre=/bin/sh -ec 'cd /sysroot/etc; mkdir -p selinux/targeted/contexts/files; echo SELINUXTYPE=targeted >selinux/config; : >selinux/targeted/contexts/files/file_contexts'
ExecStartPost=/bin/rm -r /sysroot/etc/selinux
ExecStopPost=/bin/sh -c '[ "$SERVICE_RESULT" = success ] || journalctl -u ignition-files.service -o cat -n 20 | cut -c 1-300 >/dev/console'
`
	completeUnit = `[Unit]
Description=Note that Ignition has run
DefaultDependencies=no
ConditionKernelCommandLine=ignition.firstboot
RequiresMountsFor=/var
After=local-fs.target
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/rm -f ` + firstBootStamp + `
`
)
