package e2e_test

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/pivot"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/vm"
)

const signatureNeeded = "[composefs]\nenabled = signed\n"

// TestSigned: first boots into images with an initramfs that boots only a composefs image with a signature by its own
// key. Debian's ostree-prepare-root was built without Ed25519 and would stop there, so its image is refused before
// anything is deployed. With a program in its place that claims to verify signatures, the image is committed. B's
// libostree has signed the digest that A's libostree gives the deployment, which has another commit. That system is not
// booted. It is part of "make nightly", as TestComposefs.
func TestSigned(t *testing.T) {
	key, public := ostreetree.Key(1)
	l := newLab(t, signedGuest(public))
	only := boot(t, signedMachine(t, l, signedImage(t, l, key, ""), "unverified"), vm.BootOptions{})
	if only.Exit != vm.PoweredOff {
		t.Fatalf("the machine %s, want no reboot", only.Exit)
	}
	r := report(t, only)
	if failure := r.Status.Error; r.Unit.ExecMainStatus != 78 || r.Deployments != 1 || failure == nil || !strings.Contains(failure.Message, "built without what verifies it") {
		t.Errorf("unit %+v, %d deployments, status %+v; want it refused", r.Unit, r.Deployments, failure)
	}
	m := signedMachine(t, l, signedImage(t, l, key, "#!/bin/sh\n# composefs+ostree: Validating composefs using bootc base commit\n"), "verified")
	if first := boot(t, m, vm.BootOptions{}); first.Exit != vm.Rebooted {
		t.Fatalf("the machine %s, want it committed", first.Exit)
	}
	if made, err := m.Deployments(); err != nil || len(made) != 2 {
		t.Errorf("the deployments are %q, %v", made, err)
	}
}

// TestSignedBoot boots what TestSigned does not: a system with an initramfs that verifies its signature. It needs an
// ostree-prepare-root for Debian testing that was built with Ed25519, named by PIVOT_PREPARE_ROOT
// (docs/dev/testing.md). It is part of "make nightly", and skipped without that.
func TestSignedBoot(t *testing.T) {
	file := os.Getenv("PIVOT_PREPARE_ROOT")
	if file == "" {
		t.Skip("PIVOT_PREPARE_ROOT names no ostree-prepare-root that was built with Ed25519")
	}
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	key, public := ostreetree.Key(1)
	l := newLab(t, signedGuest(public, vm.TreeFile{Path: "/usr/lib/ostree/ostree-prepare-root", Mode: 0o755, Content: program}))
	m := signedMachine(t, l, signedImage(t, l, key, ""), "signed", bootlab.Typed("say-signed", `journalctl -b -o cat | grep "^composefs"`, "PathExists=/usr/share/os-version-b")...)
	if first := boot(t, m, vm.BootOptions{}); first.Exit != vm.Rebooted {
		t.Fatalf("the machine %s, want it committed", first.Exit)
	}
	second := boot(t, m, vm.BootOptions{})
	expectSaid(t, second, "using bootc base commit", "Validated commit signature using", "mounted successfully (verity=true)")
	if r := report(t, second); r.Version != "B.2" || r.Status.Phase != string(pivot.PhaseDone) || r.FailedUnits != "" {
		t.Errorf("version %s, phase %s, failed units %q", r.Version, r.Status.Phase, r.FailedUnits)
	}
}

// signedGuest returns guests of which B boots only if the key has signed it.
func signedGuest(public string, more ...vm.TreeFile) vm.GuestSpec {
	return vm.GuestSpec{Suite: vm.Forky, OverlayB: append([]vm.TreeFile{
		{Path: "/" + prepareRoot, Mode: 0o644, Content: []byte(signatureNeeded)},
		{Path: "/etc/ostree/initramfs-root-binding.key", Mode: 0o644, Content: []byte(public)},
	}, more...)}
}

// signedMachine returns a machine with fs-verity that pivots to an image on its first boot.
func signedMachine(t *testing.T, l *bootlab.Lab, image, name string, files ...vm.TreeFile) *vm.Machine {
	t.Helper()
	want := l.Wanted()
	want.Image = image
	m, err := l.MachineWith(t.Context(), name, bootlab.Setup{
		Encapsulated: encapsulated(t, want), Files: files,
		Layout: vm.Layout{SeparateBoot: true, Verity: true}, RepoConfig: []string{"ex-integrity.fsverity=yes"},
	}, testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// signedImage pushes B as an ostree-native image with a signed commit that names its composefs image. program, if any,
// is B's ostree-prepare-root.
func signedImage(t *testing.T, l *bootlab.Lab, key ed25519.PrivateKey, program string) (reference string) {
	t.Helper()
	dir := t.TempDir()
	tree, repo, overlay := filepath.Join(dir, "tree"), filepath.Join(dir, "repo"), filepath.Join(dir, "overlay/usr/lib/ostree")
	for _, argv := range [][]string{
		{"ostree", "init", "--repo=" + repo, "--mode=bare"},
		{"ostree", "pull-local", "--disable-fsync", "--repo=" + repo, l.Guest.BareRepo(), l.Guest.CommitB},
		{"ostree", "checkout", "--repo=" + l.Guest.BareRepo(), l.Guest.CommitB, tree},
		{"mkdir", "-p", overlay},
	} {
		must(t, argv...)
	}
	if program != "" {
		if err := os.WriteFile(filepath.Join(overlay, "ostree-prepare-root"), []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// Only B's own ostree can compute the digest.
	commit := must(t, "unshare", "--mount", "sh", "-ec", `mount --bind "$1" "$2/sysroot"; mount -t proc proc "$2/proc"
chroot "$2" ostree commit --repo=/sysroot/repo --orphan --tree=ref="$3" --tree=dir=/sysroot/overlay --add-metadata-string=version=B.2 --generate-composefs-metadata`,
		"sh", dir, tree, l.Guest.CommitB)
	if err := ostreetree.Sign(repo, commit, key); err != nil {
		t.Fatal(err)
	}
	img, err := oscontainer.Encapsulated(repo, commit, oscontainer.WithWorkDir(t.TempDir()), oscontainer.WithChunks(8))
	if err == nil {
		reference, err = l.Push(t.Context(), "signed", img)
	}
	if err != nil {
		t.Fatal(err)
	}
	return reference
}

// must runs a program and returns what it prints.
func must(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(argv, " "), err)
	}
	return strings.TrimSpace(string(out))
}
