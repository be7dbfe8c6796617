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

	"machine-pivot/test/suites/ignition"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/vm"
)

// TestHost (P81) runs "make test-host", which is meant for real systems, with systems made here. They have
// real Ignition in their initramfs and no pivot. All of its cases must pass.
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

// testHostDisk runs it with a bootable disk that has A. It must report a missing image before it
// boots anything.
func testHostDisk(t *testing.T, guest *vm.Guest) {
	if missing := vm.MissingGRUB(); len(missing) > 0 {
		need.Lacking(t, "cannot make a disk that starts by itself: lacking "+strings.Join(missing, ", "))
	}
	disk := "IMAGE=" + hostDisk(t, guest)
	if out, err := testHost(t, disk, "OSIMAGE=oci:"+t.TempDir()+"/none"); err == nil || !strings.Contains(out, "cannot copy") || strings.Contains(out, "===") {
		t.Errorf("with an image that is not there: %v\n%s", err, out)
	}
	out, err := testHost(t, disk, "OSIMAGE=oci:"+ociLayout(t, guest))
	checkHost(t, out, err, 3)
}

// testHostDirectory runs it with a directory that has B, with /etc in the place where the root of a
// container has it. It must reject a directory without a kernel.
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
	// The guest's own report would power it off.
	out, err := testHost(t, "IMAGE="+tree, "HOSTTEST=-kargs 'systemd.firstboot=off report.stay'")
	checkHost(t, out, err, 2)
}

// testHost runs "make test-host".
func testHost(t *testing.T, variables ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-s", "-C", "../../..", "test-host", "BIN=" + t.TempDir()}, variables...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// checkHost checks that "make test-host" has passed the given number of cases.
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

// hostDisk makes a bootable disk that has A.
func hostDisk(t *testing.T, guest *vm.Guest) string {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "real.img")
	if err := guest.Disk(t.Context(), disk, vm.DiskSpec{
		Layout: vm.Layout{SeparateBoot: true},
		// GRUB replaces the variable with Ignition's arguments. The guest's own report would power
		// it off.
		KernelArgs: []string{"$ignition_firstboot", "ignition.platform.id=qemu", "systemd.firstboot=off", "report.stay"},
		RepoConfig: []string{"sysroot.readonly=true"},
		Files: []vm.TreeFile{
			{Path: firstBootStamp, Mode: 0o644},
			// This makes systemd detect a first boot, on which it enables units by presets.
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

// ociLayout writes an OCI layout with one image, B, and returns the reference.
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

// firstBootStamp is a file that exists until Ignition has run.
const firstBootStamp = "/var/ignition.firstboot"

// withIgnition returns the files that make a guest run Ignition in the initramfs of its first boot,
// with /var mounted and the network up, as in Fedora CoreOS.
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
			// Ignition's own module depends on url-lib, which needs curl. The guest does not have it
			// and its network module does not need it.
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
		// As in Fedora. Debian enables all units that no preset names.
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
	// This Ignition labels the files that it writes even without SELinux. It also logs its whole
	// config, which contains pivot, so the console gets only the end of the log.
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
