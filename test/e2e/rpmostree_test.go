package e2e_test

import (
	"strings"
	"testing"

	"machine-pivot/host"
	"machine-pivot/test/lab"
	"machine-pivot/test/vm"
)

// layered is a first boot on which only rpm-ostree, and so only the started
// system, can make the deployment: the booted system's origin asks for packages.
func layered(t *testing.T, l *lab.Lab) {
	want := l.Wanted()
	setup := lab.Setup{Encapsulated: encapsulated(t, want), Mode: host.ModeInitramfs}
	m, err := l.MachineOfRpmOstree(t.Context(), "layered", setup, "strace;", testLog{t})
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
	if len(made) != 1 || strings.HasPrefix(made[0], l.Guest.CommitB) {
		t.Fatalf("deployments %q, want one of a commit that is layered on %s", made, l.Guest.CommitB)
	}
	origin, err := m.ReadFile(vm.StateRoot + "/deploy/" + made[0] + ".origin")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"custom-url=pivot://" + want.Image, "baserefspec=" + l.Guest.CommitB, "requested=strace;"} {
		if !strings.Contains(string(origin), line+"\n") {
			t.Errorf("origin %q lacks %s", origin, line)
		}
	}
}
