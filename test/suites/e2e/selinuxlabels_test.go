package e2e_test

import (
	"os/exec"
	"strings"
	"testing"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// TestSELinuxLabels compares each label of an imported tree with the tree's policy, which derived layers have changed,
// by the tree's own setfiles. Each release has another libselinux, with another format of compiled contexts. It boots
// nothing.
func TestSELinuxLabels(t *testing.T) {
	t.Parallel()
	expectSetfilesContent(t, vm.GuestSpec{SELinux: vm.NewType, Suite: vm.Trixie})
}

// TestOlderSELinuxLabels is the same for an older release. It is part of "make nightly".
func TestOlderSELinuxLabels(t *testing.T) {
	expectSetfilesContent(t, vm.GuestSpec{SELinux: vm.Enforcing})
}

func expectSetfilesContent(t *testing.T, spec vm.GuestSpec) {
	t.Helper()
	spec.PolicyApart = true
	l := newLab(t, spec)
	machineWith(t, l, bootlab.Setup{}) // labelling its disk must not change what images are made of
	for _, form := range []imageForm{derivedImage, plainImage} {
		image, err := form.serve(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := l.Import(t.Context(), image)
		if err != nil {
			t.Fatal(err)
		}
		expectTypesIn(t, tree, spec.SELinux.Types())
		// Set one wrong label, to show that setfiles finds it.
		const wrong = "/usr/bin/derived-tool" // no other name has its content
		if err := hostfiles.SetLabel(tree+wrong, "system_u:object_r:etc_t:s0"); err != nil {
			t.Fatal(err)
		}
		want := "Would relabel " + wrong + " from system_u:object_r:etc_t:s0 to system_u:object_r:bin_t:s0"
		if out, err := setfiles(tree); err != nil || out != want {
			t.Errorf("%s: %v, setfiles says\n%s\nwant\n%s", form, err, out, want)
		}
	}
}

// setfiles returns what a tree's own setfiles would change in the tree. setfiles needs /proc, which
// is mounted in a new mount namespace.
func setfiles(tree string) (string, error) {
	const script = `mount -t proc proc "$0/proc" && exec chroot "$0" setfiles -F -n -v /usr/etc/selinux/default/contexts/files/file_contexts /usr`
	out, err := exec.Command("unshare", "--mount", "sh", "-c", script, tree).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// expectTypesIn checks that the paths in a tree have the types that only the changed policy gives
// them.
func expectTypesIn(t *testing.T, tree string, types map[string]string) {
	t.Helper()
	for name, typ := range types {
		if strings.HasPrefix(name, "/etc/") {
			continue // made by a first boot
		}
		if label, err := hostfiles.LabelOf(tree + name); err != nil || !strings.Contains(label, ":"+typ+":") {
			t.Errorf("%s has the label %q, want the type %s (%v)", name, label, typ, err)
		}
	}
}
