package e2e_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/settings"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// layered runs a first boot on a system with layered packages in its origin. Only rpm-ostree, and so only the started
// system, can make the new deployment.
func layered(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	expectLayered(t, l, want, l.Guest.CommitB, "custom-url=pivot://"+want.Image, "baserefspec="+l.Guest.CommitB)
}

// layeredOnNative is the same with an ostree-native container with derived layers. rpm-ostree cannot
// pull it itself, because only kubelet's pull secret gives access.
func layeredOnNative(t *testing.T, l *bootlab.Lab) {
	image, err := l.Derived(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := l.Wanted()
	want.Image = image
	expectLayered(t, l, want, "", "container-image-reference=ostree-unverified-registry:"+image)
}

// expectLayered boots a machine with layered packages and checks that one reboot leads to a deployment layered on base
// ("": the image's commit in the journal). Its origin must have the given lines and the packages.
func expectLayered(t *testing.T, l *bootlab.Lab, want bootlab.Want, base string, lines ...string) {
	t.Helper()
	setup := bootlab.Setup{Encapsulated: encapsulated(t, want), Mode: settings.ModeInitramfs}
	m, err := l.MachineOfRpmOstree(t.Context(), diskName(t), setup, "strace;", testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	first := boot(t, m, vm.BootOptions{})
	expectAside(t, first, "layered")
	expectPivot(t, first)
	second := boot(t, m, vm.BootOptions{})
	expectArrived(t, second, want)

	var made []string
	for _, name := range report(t, second).Deployed {
		if !strings.HasPrefix(name, l.Guest.CommitA) {
			made = append(made, name)
		}
	}
	if base == "" {
		base = journal(t, m).Target.Image.Commit
	}
	if len(made) != 1 || base == "" || strings.HasPrefix(made[0], base) {
		t.Fatalf("deployments %q, want one of a commit that is layered on %s", made, base)
	}
	origin, err := m.ReadFile(vm.StateRoot + "/deploy/" + made[0] + ".origin")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range append(lines, "requested=strace;") {
		if !strings.Contains(string(origin), line+"\n") {
			t.Errorf("origin %q lacks %s", origin, line)
		}
	}
}
