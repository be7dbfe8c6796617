package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/settings"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// TestCutEntering (P96) ends the way into the new system before each of its calls: by a kill or a failure of the
// program, by a power cut, and once by a hang. The next boot must be the new system, complete. It is part of "make
// nightly".
func TestCutEntering(t *testing.T) {
	l := newLab(t, vm.GuestSpec{SameKernel: true, Overlay: append(ignitionUnits(t), endsWay(t)...)})
	want := l.Wanted()
	whole := boot(t, enterMachine(t, l, "whole", settings.RebootEnter, bootlab.Setup{KernelArgs: want.Kargs}), firstBootArgs())
	expectEntered(t, whole)
	calls := wayLength(t, whole)
	cases := []bootCase{{"a hang", func(t *testing.T) { cutBefore(t, l, calls/2, "hang") }}}
	for n := range calls {
		cases = append(cases, bootCase{fmt.Sprintf("before call %d", n), func(t *testing.T) { cutBefore(t, l, n, "kill", "fail", "power") }})
	}
	together(t, cases)
}

// cutBefore ends the way before a call, in each way on a machine of its own. A hang lasts until systemd ends the unit.
func cutBefore(t *testing.T, l *bootlab.Lab, n int, ways ...string) {
	want := l.Wanted()
	for _, how := range ways {
		m := enterMachine(t, l, how, settings.RebootEnter, bootlab.Setup{KernelArgs: want.Kargs})
		options := firstBootArgs(fmt.Sprintf("entercut=%d:%s", n, how))
		options.Limits.Idle = 20 * time.Minute // the unit's timeouts, four times
		end := vm.Rebooted
		if how == "power" {
			options.StopWhen = func(line string) bool { return strings.Contains(line, "@@cut ") }
			end = vm.Stopped
		}
		first := boot(t, m, options)
		if first.Exit != end || !first.Said("@@cut ") || first.Said(systemA) || first.Said(systemB) {
			t.Fatalf("%s: the machine %s, want that it %s before any system starts", how, first.Exit, end)
		}
		expectNext(t, l, m, want)
		if how == "kill" || how == "hang" {
			expectArrived(t, boot(t, m, vm.BootOptions{}), want)
		}
	}
}

// wayLength returns the number of calls that the program of the tests has counted.
func wayLength(t *testing.T, b *vm.BootResult) (calls int) {
	t.Helper()
	i := indexOf(b, "@@way of ")
	if i < 0 {
		t.Fatal("the program of the tests did not go the way")
	}
	_, text, _ := strings.Cut(b.Serial[i].Text, "@@way of ")
	if _, err := fmt.Sscanf(text, "%d calls", &calls); err != nil || calls < 10 {
		t.Fatalf("it went %q: %v", text, err)
	}
	return calls
}

// endsWay returns the dracut module with the program that ends the way, which it builds.
func endsWay(t *testing.T) []vm.TreeFile {
	t.Helper()
	const name = "entercut"
	program := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-trimpath", "-o", program, "machine-pivot/test/tools/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	const module = "97entercut"
	return append(dracutModule(t, name, module), vm.TreeFile{Path: "/usr/lib/dracut/modules.d/" + module + "/" + name, Mode: 0o755, Content: content})
}
