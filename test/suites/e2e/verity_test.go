package e2e_test

import (
	"os/exec"
	"regexp"
	"testing"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

const verityNeeded = "[composefs]\nenabled = verity\n"

// TestVerity runs a first boot into an image with a composefs root that requires fs-verity. All files can be read,
// those of new objects and those of objects that the host had without fs-verity. Then a bit of an object is flipped on
// the disk, and this file alone cannot be read. It is part of "make nightly", as TestComposefs.
func TestVerity(t *testing.T) {
	l := newLab(t, vm.GuestSpec{
		Suite: vm.Forky, OverlayB: []vm.TreeFile{
			{Path: "/" + prepareRoot, Mode: 0o644, Content: []byte(verityNeeded)},
			{Path: onlyInB, Mode: 0o644, Content: []byte("content that no other file has, so that the object is this file's alone\n")},
		},
	})
	want := l.Wanted()
	said := bootlab.Typed("say-read", "journalctl -b -o cat | grep -o \"composefs: mounted successfully.*\" || true; "+
		"cat "+onlyInB+" >/dev/null && echo @@one read || echo @@one refused; "+
		"find /usr -xdev -type f ! -path "+onlyInB+" -exec cat {} + >/dev/null && echo @@others read || echo @@others refused", "PathExists="+onlyInB)
	m := machineWith(t, l, bootlab.Setup{
		Encapsulated: encapsulated(t, want), Files: said,
		Layout: vm.Layout{SeparateBoot: true, Verity: true}, RepoConfig: []string{"ex-integrity.fsverity=yes"},
	})
	expectPivot(t, boot(t, m, vm.BootOptions{}))
	second := boot(t, m, vm.BootOptions{})
	expectArrived(t, second, want)
	for _, line := range []string{"composefs: mounted successfully (verity=true)", "@@one read", "@@others read"} {
		if !second.Said(line) {
			t.Errorf("the machine does not say %q", line)
		}
	}
	if err := m.FlipBit(t.Context(), "/ostree/repo/objects/"+objectOf(t, l, onlyInB)); err != nil {
		t.Fatal(err)
	}
	third := boot(t, m, vm.BootOptions{})
	for _, line := range []string{"@@one refused", "@@others read"} {
		if !third.Said(line) {
			t.Errorf("after a bit was flipped, the machine does not say %q", line)
		}
	}
}

// onlyInB is a file that A does not have.
const onlyInB = "/usr/share/only-in-b"

// objectOf returns the path of a file's object in B, relative to the repository's objects.
func objectOf(t *testing.T, l *bootlab.Lab, path string) string {
	t.Helper()
	out, err := exec.Command("ostree", "ls", "--repo="+l.Guest.BareRepo(), "-C", l.Guest.CommitB, path).Output()
	sum := regexp.MustCompile(`\s([0-9a-f]{64})\s`).FindSubmatch(out)
	if err != nil || sum == nil {
		t.Fatalf("cannot find the object of %s: %v, %q", path, err, out)
	}
	return string(sum[1][:2]) + "/" + string(sum[1][2:]) + ".file"
}
