package box_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"machine-pivot/test/box"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/recorded"
	"machine-pivot/test/worlds/vm"
)

// newLab makes a lab with guests of a Debian release.
func newLab(t *testing.T, suite string) *bootlab.Lab {
	t.Helper()
	if testing.Short() {
		t.Skip("boots machines; not in a short run")
	}
	if missing := append(box.Missing(), append(bootlab.MissingInBox(), recorded.MissingToExport()...)...); len(missing) > 0 {
		need.Lacking(t, "cannot boot machines in boxes here: lacking "+strings.Join(missing, ", "))
	}
	world, err := bootlab.NewOf(t.Context(), "../..", vm.GuestSpec{Suite: suite}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := world.Close(); err != nil {
			t.Error(err)
		}
	})
	return world
}

// provisioned makes a machine before its first boot, with the files that Ignition writes for a target.
func provisioned(t *testing.T, world *bootlab.Lab, want bootlab.Want, layout vm.Layout) *vm.Machine {
	t.Helper()
	files, err := world.Provision(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	m, err := world.MachineWith(t.Context(), filepath.Base(t.Name()), bootlab.Setup{Files: files, Layout: layout}, consoleLog{t})
	if err != nil {
		t.Fatal(err)
	}
	world.InBox(m)
	t.Cleanup(func() { expectFree(t, m) })
	return m
}

func boot(t *testing.T, m *vm.Machine, o vm.BootOptions, end vm.Reason) *vm.BootResult {
	t.Helper()
	b, err := m.Boot(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if b.Exit != end {
		t.Fatalf("the machine %s after %s, want that it %s", b.Exit, b.Duration, end)
	}
	t.Logf("a boot of %.1f s", b.Duration.Seconds())
	return b
}

// expectArrived checks the report of a machine that has reached its target.
func expectArrived(t *testing.T, b *vm.BootResult, want bootlab.Want) *vm.Report {
	t.Helper()
	r, err := b.Report()
	if err != nil {
		t.Fatal(err)
	}
	if r.Version != "B.2" || !r.MarkerB || !r.Closed || r.Encapsulated || r.Status.Phase != "done" || r.Kubelet.ActiveState != "active" {
		t.Errorf("the machine did not arrive: %+v", r)
	}
	if r.FailedUnits != "" {
		t.Errorf("failed units: %s", r.FailedUnits)
	}
	if !strings.Contains(r.Cmdline, strings.Join(want.Kargs, " ")) {
		t.Errorf("the kernel command line is %q, want %q in it", r.Cmdline, want.Kargs)
	}
	for _, f := range want.PinningFiles() {
		if err := r.HasFile(f); err != nil {
			t.Error(err)
		}
	}
	return r
}

// expectFree checks that no loop device and no cgroup is left of a machine's box.
func expectFree(t *testing.T, m *vm.Machine) {
	t.Helper()
	devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range devices {
		if file, err := os.ReadFile(device); err == nil && strings.TrimSpace(string(file)) == m.Disk {
			t.Errorf("%s is left of disk %s", device, m.Disk)
		}
	}
}

// consoleLog copies the relevant lines of a console to the test's log.
type consoleLog struct{ t *testing.T }

func (l consoleLog) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		l.t.Log("| " + strings.TrimSpace(line))
	}
	return len(p), nil
}

// boxCase is a case with machines of one release.
type boxCase struct {
	name string
	run  func(*testing.T, *bootlab.Lab)
}

// ownCases are about the box itself.
func ownCases() []boxCase {
	return []boxCase{{"what was not flushed", unflushed}, {"commands in two boxes", twoBoxes}}
}

// TestBox boots machines of Debian 13. Their first boots and power cuts are in test/suites/e2e.TestBoxed.
func TestBox(t *testing.T) { boots(t, vm.Trixie, ownCases()) }

// TestBoxOfOtherReleases boots those of the oldest and of the newest release that guests can be made of. It is part of
// "make nightly".
func TestBoxOfOtherReleases(t *testing.T) {
	for _, suite := range []string{vm.Bookworm, vm.Forky} {
		t.Run(suite, func(t *testing.T) {
			boots(t, suite, append(ownCases(), boxCase{"first boot", firstBoot}, boxCase{"power cut", powerCut}))
		})
	}
}

func boots(t *testing.T, suite string, cases []boxCase) {
	t.Helper()
	world := newLab(t, suite)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(t, world) })
	}
}

// firstBoot is a whole first boot: the sandboxed unit, one reboot, the proof, and kubelet only then.
func firstBoot(t *testing.T, world *bootlab.Lab) {
	want := world.Wanted()
	m := provisioned(t, world, want, vm.Layout{})
	var story, proof bootlab.Story
	boot(t, m, vm.BootOptions{OnLine: story.Line}, vm.Rebooted)
	second := boot(t, m, vm.BootOptions{OnLine: proof.Line}, vm.PoweredOff)
	expectArrived(t, second, want)
	if err := bootlab.CheckStories(&story, &proof); err != nil {
		t.Error(err)
	}
}

// powerCut cuts the power of a first boot when its commit begins. The disk must boot a whole system, and the next
// boots must reach the target. The layout is RHCOS's: a separate /boot, and an XFS root.
func powerCut(t *testing.T, world *bootlab.Lab) {
	layout := vm.Layout{SeparateBoot: true, Root: vm.XFS}
	if missing := layout.Missing(); len(missing) > 0 {
		need.Lacking(t, "cannot make the disk: lacking "+strings.Join(missing, ", "))
	}
	want := world.Wanted()
	m := provisioned(t, world, want, layout)
	committing := func(line string) bool { return strings.Contains(line, "pivot: commit: ") }
	boot(t, m, vm.BootOptions{StopWhen: committing}, vm.Stopped)
	state, err := m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(state.Deployment, world.Guest.CommitA) {
		t.Errorf("the disk boots %s, want A: nothing of B can be durable yet", state.Deployment)
	}
	boot(t, m, vm.BootOptions{}, vm.Rebooted)
	expectArrived(t, boot(t, m, vm.BootOptions{}, vm.PoweredOff), want)
}

// unflushed loses what was written but not flushed at a power cut, and keeps what was flushed.
func unflushed(t *testing.T, world *bootlab.Lab) {
	m, err := world.MachineByHand(t.Context(), "unflushed",
		"cd /var; echo kept >kept; sync; echo lost >lost; echo @@written", nil, consoleLog{t})
	if err != nil {
		t.Fatal(err)
	}
	world.InBox(m)
	boot(t, m, vm.BootOptions{StopWhen: func(line string) bool { return strings.Contains(line, "@@written") }}, vm.Stopped)
	if kept, err := m.ReadFile(vm.VarDir + "/kept"); err != nil || string(kept) != "kept\n" {
		t.Errorf("what was flushed is %q: %v", kept, err)
	}
	if lost, err := m.ReadFile(vm.VarDir + "/lost"); err == nil && len(lost) > 0 {
		t.Errorf("what was not flushed is there: %q", lost)
	}
}

// twoBoxes runs commands in two boxes at once, which have only their own of what a host has once.
func twoBoxes(t *testing.T, world *bootlab.Lab) {
	var all sync.WaitGroup
	defer all.Wait()
	ids := make([]string, 2)
	for i := range ids {
		all.Go(func() {
			t.Run(fmt.Sprint(i), func(t *testing.T) { ids[i] = commands(t, world) })
		})
	}
	all.Wait()
	host, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	if ids[0] == ids[1] || ids[0] == strings.TrimSpace(string(host)) || ids[0] == "" {
		t.Errorf("the boot IDs are %q, the host's is %q", ids, host)
	}
}

// commands boots a machine that stays on, runs commands in it, and returns its boot ID. The last command ends it.
func commands(t *testing.T, world *bootlab.Lab) string {
	m, err := world.MachineByHand(t.Context(), "command-"+filepath.Base(t.Name()), "echo @@up", nil, consoleLog{t})
	if err != nil {
		t.Fatal(err)
	}
	b := world.InBox(m)
	if _, err := b.Command(t.Context(), "true"); err == nil {
		t.Error("a command ran before the boot")
	}
	up, ran := make(chan struct{}), make(chan map[string]string)
	go func() {
		<-up
		ran <- outputs(t, b)
	}()
	var once sync.Once
	watch := func(line string) {
		if strings.Contains(line, "@@up") {
			once.Do(func() { close(up) })
		}
	}
	began := time.Now()
	boot(t, m, vm.BootOptions{ExtraArgs: []string{"report.stay"}, OnLine: watch}, vm.PoweredOff)
	once.Do(func() { close(up) })
	got := <-ran
	// A boot's clock begins with it: one that began before would place it before the end of the boot before.
	if uptime, err := strconv.ParseFloat(got[uptimeCommand], 64); err != nil || uptime <= 0 || uptime > time.Since(began).Seconds() {
		t.Errorf("the machine has been up for %q seconds, want less than the %v since its start was asked for", got[uptimeCommand], time.Since(began))
	}
	for command, want := range expected() {
		if got[command] != want {
			t.Errorf("%s: %q, want %q", command, got[command], want)
		}
	}
	return got[bootIDCommand]
}

const (
	bootIDCommand = "cat /proc/sys/kernel/random/boot_id"
	uptimeCommand = "cut -d' ' -f1 /proc/uptime"
)

// expected is what commands in a box print.
func expected() map[string]string {
	return map[string]string{
		"cat /proc/1/comm": "systemd",
		"busctl list --no-legend | grep -c '^org.freedesktop.systemd1 '": "1",
		"hostname": "pivot",
		"test -d /sys/fs/cgroup/init.scope && echo own":          "own",
		"grep -c report.stay /proc/cmdline":                      "1",
		"touch /proc/sys/kernel/x 2>/dev/null || echo read-only": "read-only",
	}
}

// outputs runs commands in a box and returns what they print. It ends the box.
func outputs(t *testing.T, b *box.Box) map[string]string {
	got := map[string]string{}
	for _, command := range append(slices.Collect(maps.Keys(expected())), bootIDCommand, uptimeCommand, "systemctl poweroff") {
		cmd, err := b.Command(t.Context(), "sh", "-c", command)
		if err != nil {
			t.Error(err)
			return got
		}
		out, err := cmd.CombinedOutput()
		if err != nil && command != "systemctl poweroff" {
			t.Errorf("%s: %v: %s", command, err, out)
		}
		got[command] = strings.TrimSpace(string(out))
	}
	return got
}
