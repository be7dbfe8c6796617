// Package e2e tests complete boots. Each case makes a disk, boots it one or more times, and checks the machine's
// reports. It boots in QEMU, or, if it needs no kernel, initramfs or boot loader of the guest, in a box (package box).
package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/internal/pinning"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/test/box"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/recorded"
	"machine-pivot/test/worlds/vm"
)

// TestEarlyFirstBoot tests what only a kernel, an initramfs and dracut can show: power cuts on the whole way there. It is part
// of "make nightly".
func TestEarlyFirstBoot(t *testing.T) {
	t.Parallel()
	runFirstBoots(t, newLab(t, vm.GuestSpec{Suite: vm.Trixie}), []firstBootCase{
		{"initramfs, power cuts", earlyPowerCuts},
	})
}

// TestBoxed tests what needs a real systemd as PID 1, reboots and a disk, but no kernel, initramfs or boot loader of
// the guest: its machines boot in boxes. They are of the oldest release with a systemd that leaves a box's /proc as it
// is (docs/dev/testing.md). Each case has passed in QEMU before, too. The longest cases come first, so that a short one
// ends last.
func TestBoxed(t *testing.T) {
	t.Parallel()
	runFirstBoots(t, boxedLab(t), []firstBootCase{
		{"power cuts", powerCuts},
		{"main job, and taken back", mainJob},
		{"first boots of others, all at once", amongOthers},
		{"repaired in place", repairedInPlace},
		{"by hand, and to the next version", byHand},
		{"MachineConfigs that switch var", switchesVar},
		{"drift that is found and repaired", repairsDrift},
		{"a live change, and a power cut in one", changedLive},
		{"the steps after a failed first boot", failurePage},
		{"a slot of a fleet's lock", inAFleet},
		{"a name that comes late", lateName},
		{"a name that a later change loses", lostLater},
		{"already at target", alreadyAtTarget},
	})
}

// TestBoxedWhole has the cases in boxes that take minutes. It is part of "make nightly".
func TestBoxedWhole(t *testing.T) {
	runFirstBoots(t, boxedLab(t), []firstBootCase{
		{"power cuts of an apply", applyPowerCuts},
		{"Ignition's first boot fails", ignitionFails},
		{"systemd's first boot fails", systemdFails},
	})
}

// boxedLab makes a lab with machines that boot in boxes.
func boxedLab(t *testing.T) *bootlab.Lab {
	t.Helper()
	world := newLab(t, vm.GuestSpec{Suite: vm.Trixie})
	if missing := append(box.Missing(), recorded.MissingToExport()...); len(missing) > 0 {
		need.Lacking(t, "cannot boot machines in boxes here: lacking "+strings.Join(missing, ", "))
	}
	world.Boxed = true
	return world
}

// TestFirstBootWhole has cases that TestEarlyFirstBoot, TestBoxed and unit tests together cover for the most part.
// It is part of "make nightly".
func TestFirstBootWhole(t *testing.T) {
	runFirstBoots(t, newLab(t, vm.GuestSpec{}), []firstBootCase{
		{"telco", telco},
		{"both modes, separate boot, xfs root", modes},
		{"by kexec", byKexec},
		{"plain image", plainInInitramfs},
		{"rpm-ostree with layered packages", layered},
		{"rpm-ostree with layered packages, native image", layeredOnNative},
		{"CPUs that are not there or that nosmt switches off", refusedCPUs},
		{"bad MachineConfig", badMachineConfig},
		{"no network in the initramfs", noNetwork},
		{"the steps in the emergency shell", emergencyShell},
		{"composefs that ostree cannot make", composefsRefused},
		{"registry comes up late", registryLate},
	})
}

// firstBootCase is a case that runs with its own lab.
type firstBootCase struct {
	name string
	run  func(*testing.T, *bootlab.Lab)
}

func runFirstBoots(t *testing.T, world *bootlab.Lab, cases []firstBootCase) {
	t.Helper()
	var boots []bootCase
	for _, c := range cases {
		boots = append(boots, bootCase{c.name, func(t *testing.T) { c.run(t, alone(t, world)) }})
	}
	together(t, boots)
}

// bootCase is a case that boots machines, one at a time.
type bootCase struct {
	name string
	run  func(*testing.T)
}

// slots limits how many machines run at the same time, in all tests together.
var slots = make(chan struct{}, runtime.NumCPU())

// together starts cases in order and runs as many at a time as there are processors, including
// those of parallel tests: an emulated machine uses one processor. Hanging machines are detected by
// what they do (vm.Limits), so a case may be slow.
func together(t *testing.T, cases []bootCase) {
	t.Helper()
	var running sync.WaitGroup
	defer running.Wait()
	for _, c := range cases {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			t.Run(c.name, c.run)
		})
	}
}

// needMachines skips the test if machines cannot be booted here. In CI that is a failure instead.
func needMachines(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots machines; not in a short run")
	}
	if missing := bootlab.Missing(); len(missing) > 0 {
		need.Lacking(t, "cannot boot machines here: lacking "+strings.Join(missing, ", "))
	}
}

// newLab makes a lab with the guest that spec describes, and further targets of make (bootlab.NewOf).
func newLab(t *testing.T, spec vm.GuestSpec, further ...string) *bootlab.Lab {
	t.Helper()
	needMachines(t)
	world, err := bootlab.NewOf(t.Context(), "../../..", spec, os.Stderr, further...)
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

// alone makes a lab for one case, because other cases run in parallel.
func alone(t *testing.T, world *bootlab.Lab) *bootlab.Lab {
	t.Helper()
	own, err := world.Alone(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	})
	return own
}

// mainJob starts from MachineConfigs: pivotctl renders the Ignition config, and Ignition writes the
// files, including the pinning files. In most other cases the encapsulated MachineConfig has the
// pinning files, so that pivot must add them to /etc. The disk has RHCOS's layout.
func mainJob(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	m := provisioned(t, l, want, bootlab.Setup{Layout: redHat(t), Files: readsSignal()})
	expectInOldSystem(t, l, m, true)
	var story, proof bootlab.Story // as in the demonstration
	first := boot(t, m, vm.BootOptions{OnLine: story.Line})
	expectPivot(t, first)
	second := boot(t, m, vm.BootOptions{OnLine: proof.Line})
	expectArrived(t, second, want)
	expectPlot(t, report(t, second), l.Boxed)
	if err := bootlab.CheckStories(&story, &proof); err != nil {
		t.Error(err)
	}
	if first.Said(isOver) || !second.Said(isOver) {
		t.Errorf("others take the first boot for over: in the old system %v, in the new one %v", first.Said(isOver), second.Said(isOver))
	}
	expectProven(t, m, want)
	takenBack(t, l, m)
}

// isOver is what another program says that takes the absence of a file for the end of the first boot.
const isOver = "@@the first boot is over"

// readsSignal returns the unit of that program, which runs before the network as
// NetworkManager-clean-initrd-state.service of the machine-config operator does.
func readsSignal() []vm.TreeFile {
	const dir, unit = "/etc/systemd/system/", "reads-signal.service"
	text := "[Unit]\nConditionPathExists=!" + firstboot.EncapsulatedPath + "\nWants=network-pre.target\nBefore=network-pre.target\n" +
		"[Service]\nType=oneshot\nExecStart=/bin/echo '" + isOver + "'\nStandardOutput=journal+console\n"
	return []vm.TreeFile{
		{Path: dir + unit, Mode: 0o644, Content: []byte(text)},
		{Path: dir + "multi-user.target.wants/" + unit, Symlink: "../" + unit},
	}
}

func alreadyAtTarget(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	m, err := l.MachineAt(t.Context(), "at-target", want, testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	requests := l.Registry.Requests()
	only := boot(t, m, vm.BootOptions{})
	expectArrived(t, only, want)
	if n := l.Registry.Requests() - requests; n != 0 {
		t.Errorf("%d requests to the registry, want none", n)
	}
	if r := report(t, only); r.Deployments != 1 {
		t.Errorf("%d deployments, want the one that was there", r.Deployments)
	}
}

// badMachineConfig boots with an invalid MachineConfig. The first boot must stop in the initramfs,
// or in the system if the administrator has configured that.
func badMachineConfig(t *testing.T, l *bootlab.Lab) {
	bad := []byte(`{"spec":{"osImageURL":"not a reference","kernelArguments":["ostree=/x","a=\"open"],"fips":"no"}}`)
	wrong := []string{"$.spec.osImageURL", "$.spec.kernelArguments[0]", "$.spec.kernelArguments[1]", "$.spec.fips"}
	m := machineWith(t, l, bootlab.Setup{Encapsulated: bad, Mode: settings.ModeInitramfs})
	requests := l.Registry.Requests()
	expectStopped(t, m, wrong)
	only := boot(t, m, vm.BootOptions{ExtraArgs: []string{"pivot.on-failure=system"}})
	expectAside(t, only, "")
	if only.Exit != vm.PoweredOff {
		t.Fatalf("the machine %s, want no reboot", only.Exit)
	}
	r := report(t, only)
	if r.Unit.ActiveState != "failed" || r.Unit.ExecMainStatus != 65 {
		t.Errorf("unit is %+v, want failed with 65", r.Unit)
	}
	if r.Kubelet.ActiveState == "active" || only.Said("@@kubelet started") {
		t.Error("kubelet started")
	}
	if !only.Said("kubelet is held") {
		t.Error("the console does not say that kubelet is held")
	}
	for _, path := range wrong {
		if !only.Said(path) {
			t.Errorf("the console does not name %s", path)
		}
		if r.Status.Error == nil || !strings.Contains(r.Status.Error.Message, path) {
			t.Errorf("pivot status does not name %s: %+v", path, r.Status.Error)
		}
	}
	if !r.Encapsulated || r.Closed {
		t.Error("the file was moved")
	}
	if n := l.Registry.Requests() - requests; n != 0 {
		t.Errorf("%d requests to the registry, want none", n)
	}
}

// refusedCPUs requests both threads of the machine's only core, with nosmt, and CPUs that do not
// exist. One error must report both problems.
func refusedCPUs(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	want.Pinning = management(t, "0-63")
	m := provisioned(t, l, want, bootlab.Setup{})
	// An emulated AMD CPU does not report threads.
	m.Extra = append(m.Extra, "-smp", "2,sockets=1,cores=1,threads=2", "-cpu", "max,vendor=GenuineIntel")
	expectRefused(t, l, m, "the machine has no CPU 2-63, only 0-1",
		"CPU 1 will be offline after the reboot: nosmt switches the second threads of all cores off (CPU 1 is a thread of the core 0-1)")
}

func management(t *testing.T, set string) pinning.Workloads {
	t.Helper()
	cpus, err := pinning.ParseCPUSet(set)
	if err != nil {
		t.Fatal(err)
	}
	return pinning.Workloads{pinning.Management: cpus}
}

// expectRefused boots a machine that must refuse to pivot permanently and report all causes, without
// a request to the registry and without any change.
func expectRefused(t *testing.T, l *bootlab.Lab, m *vm.Machine, causes ...string) {
	t.Helper()
	requests := l.Registry.Requests()
	only := boot(t, m, vm.BootOptions{})
	if only.Exit != vm.PoweredOff {
		t.Fatalf("the machine %s, want no reboot", only.Exit)
	}
	r := report(t, only)
	if r.Unit.ActiveState != "failed" || r.Unit.ExecMainStatus != 65 {
		t.Errorf("unit is %+v, want failed with 65", r.Unit)
	}
	if r.Kubelet.ActiveState == "active" || only.Said("@@kubelet started") {
		t.Error("kubelet started")
	}
	for _, why := range causes {
		if r.Status.Error == nil || !strings.Contains(r.Status.Error.Message, why) || !only.Said(why) {
			t.Errorf("status and console do not both say %q: %+v", why, r.Status.Error)
		}
	}
	if n := l.Registry.Requests() - requests; n != 0 || r.Deployments != 1 {
		t.Errorf("%d requests to the registry, %d deployments", n, r.Deployments)
	}
	if !r.Encapsulated || r.Closed {
		t.Error("the file was moved")
	}
}

// registryLate starts the registry only after the initramfs has given up waiting for it and while
// the system waits.
func registryLate(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	m := machineWith(t, l, bootlab.Setup{Encapsulated: encapsulated(t, want), Mode: settings.ModeInitramfs})
	down := func(down bool) {
		if err := l.Registry.SetDown(down); err != nil {
			t.Error(err)
		}
	}
	down(true)
	defer down(false)
	started, waited := false, false
	first := boot(t, m, vm.BootOptions{OnLine: func(line string) {
		started = started || strings.Contains(line, systemA)
		if started && strings.Contains(line, "try 2 failed") {
			waited = true
			down(false)
		}
	}})
	if !waited {
		t.Error("the system did not say that it waits")
	}
	expectAside(t, first, "connection refused")
	expectPivot(t, first)
	expectInOldSystem(t, l, m, false)
	expectNext(t, l, m, want)
}

// byHand runs commands on a machine without a MachineConfig: a rebase to an image with derived
// layers, as most images have, and from there to its next version.
func byHand(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	var err error
	if want.Image, err = l.Derived(t.Context()); err != nil {
		t.Fatal(err)
	}
	next, err := l.DerivedVersion(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	asked := want.Image + " --append-karg nosmt --append-karg loglevel=7 --cpuset management=0"
	// The second rebase only has to reboot. Before that, the systemd journal must have the result of
	// the first.
	command := fmt.Sprintf("pivot plan %s; pivot rebase %s; journalctl --sync; "+
		"journalctl -q -o verbose MESSAGE_ID=2982393e9f684b7d87b2e122332ea270; pivot rebase %s -r", asked, asked, asked)
	m, err := l.MachineByHand(t.Context(), "by-hand", command, withNextVersion(next), testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	first := boot(t, m, vm.BootOptions{})
	if first.Exit != vm.Rebooted {
		t.Fatalf("the machine %s, want a reboot", first.Exit)
	}
	expectSaid(t, first, "+ "+want.Image, "+ nosmt", "create /etc/kubernetes/openshift-workload-pinning", "reboots: 1",
		"PIVOT_PHASE=committed", "PIVOT_IMAGE="+want.Image)
	nextVersion(t, l, m, want, next)
}

// expectPivot checks the boot that pivots: kubelet is held, and the boot ends with a reboot.
func expectPivot(t *testing.T, b *vm.BootResult) {
	t.Helper()
	if b.Exit != vm.Rebooted {
		t.Fatalf("the machine %s, want a reboot", b.Exit)
	}
	if b.Said("@@kubelet started") {
		t.Error("kubelet started before the pivot")
	}
	if b.Said("not judged in full") {
		t.Error("the new system's programs could not be run") // with what the unit may do, and in the initramfs
	}
	t.Logf("first boot: %.1f s to the reboot", b.Duration.Seconds())
}

// expectInOldSystem checks that the old system has the pinning files if and only if Ignition has
// written them.
func expectInOldSystem(t *testing.T, l *bootlab.Lab, m *vm.Machine, written bool) {
	t.Helper()
	old := vm.StateRoot + "/deploy/" + l.Guest.CommitA + ".0"
	if _, err := m.ReadFile(old + firstboot.EncapsulatedPath); err != nil {
		t.Error(err)
	}
	for _, path := range []string{pinning.DropInPath, pinning.KubeletPath} {
		if _, err := m.ReadFile(old + path); (err == nil) != written {
			t.Errorf("%s in the old system: %v, want it there: %v", path, err, written)
		}
	}
}

// expectNext checks that a powered-off machine will boot the new system next, with its kernel
// arguments and files.
func expectNext(t *testing.T, l *bootlab.Lab, m *vm.Machine, want bootlab.Want) {
	t.Helper()
	next, err := m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if deployed := vm.StateRoot + "/deploy/" + l.Guest.CommitB + ".0"; next.Deployment != deployed {
		t.Fatalf("the next boot is %s, want %s", next.Deployment, deployed)
	}
	for _, arg := range strings.Fields(strings.Join(want.Kargs, " ")) {
		if strings.Count(" "+next.Entries[0].Options+" ", " "+arg+" ") != 1 {
			t.Errorf("the next boot has the options %q, want %s once", next.Entries[0].Options, arg)
		}
	}
	for _, f := range want.PinningFiles() {
		if content, err := m.ReadFile(next.Deployment + f.Path); err != nil || string(content) != string(f.Content) {
			t.Errorf("the next system has %s with %q (%v)", f.Path, content, err)
		}
	}
	if journal := journal(t, m); journal.Phase != pivot.PhaseCommitted {
		t.Errorf("journal in phase %s, want committed", journal.Phase)
	}
}

// expectArrived checks that a machine has reached its target and that its first boot is closed.
func expectArrived(t *testing.T, b *vm.BootResult, want bootlab.Want) {
	t.Helper()
	r := expectTarget(t, b, want)
	if says := func(l vm.SerialLine) bool { return strings.Contains(l.Text, bootlab.UnitSays) }; want.Unit && !slices.ContainsFunc(b.Serial, says) {
		t.Error("the unit of the MachineConfig did not run")
	}
	if r.Encapsulated || !r.Closed {
		t.Errorf("the first boot is not closed: file there %v, .bak there %v", r.Encapsulated, r.Closed)
	}
	if r.Unit.ActiveState != "active" {
		t.Errorf("unit %+v, want it active", r.Unit)
	}
}

// expectTarget checks that a machine has reached its target at the first attempt.
func expectTarget(t *testing.T, b *vm.BootResult, want bootlab.Want) *vm.Report {
	t.Helper()
	r := expectWhole(t, b, want)
	if r.Status.Attempt != 1 {
		t.Errorf("status %+v, want the first attempt", r.Status)
	}
	return r
}

// expectWhole checks that a machine has reached its target, no matter how many attempts it took.
func expectWhole(t *testing.T, b *vm.BootResult, want bootlab.Want) *vm.Report {
	t.Helper()
	if b.Exit != vm.PoweredOff {
		t.Fatalf("the machine %s, want no further reboot", b.Exit)
	}
	t.Logf("last boot: %.1f s to power-off", b.Duration.Seconds())
	r := report(t, b)
	if r.Version != "B.2" || !r.MarkerB {
		t.Errorf("booted version %s (marker %v), want B.2", r.Version, r.MarkerB)
	}
	for _, arg := range strings.Fields(strings.Join(want.Kargs, " ")) {
		if strings.Count(" "+r.Cmdline+" ", " "+arg+" ") != 1 {
			t.Errorf("command line %q, want %s once", r.Cmdline, arg)
		}
	}
	for _, f := range want.PinningFiles() {
		if err := r.HasFile(f); err != nil {
			t.Error(err)
		}
	}
	if n := r.FilesIn("/etc/crio/crio.conf.d"); n != 1 {
		t.Errorf("%d files in CRI-O's drop-in directory, want 1", n)
	}
	if r.Kubelet.ActiveState != "active" {
		t.Errorf("kubelet %+v, want it active", r.Kubelet)
	}
	if r.Status.Phase != "done" {
		t.Errorf("status %+v, want done", r.Status)
	}
	if r.FailedUnits != "" {
		t.Errorf("failed units: %s", r.FailedUnits)
	}
	return r
}

// expectProven checks that the journal is done and that its target has the MachineConfig's files.
func expectProven(t *testing.T, m *vm.Machine, want bootlab.Want) {
	t.Helper()
	journal := journal(t, m)
	var paths []string
	for _, f := range want.PinningFiles() {
		paths = append(paths, f.Path)
	}
	paths = append(paths, want.UnitPaths()...)
	if got := journal.Target.Paths(); journal.Phase != pivot.PhaseDone || !slices.Equal(got, paths) {
		t.Errorf("journal in phase %s with the files %q, want done with %q", journal.Phase, got, paths)
	}
}

// provisioned returns a machine with files that Ignition has written.
func provisioned(t *testing.T, l *bootlab.Lab, want bootlab.Want, s bootlab.Setup) *vm.Machine {
	t.Helper()
	files, err := l.Provision(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	s.Files = append(files, s.Files...)
	return machineWith(t, l, s)
}

func machineWith(t *testing.T, l *bootlab.Lab, s bootlab.Setup) *vm.Machine {
	t.Helper()
	m, err := l.MachineWith(t.Context(), diskName(t), s, testLog{t})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// journal reads pivot's journal from a powered-off machine's disk.
func journal(t *testing.T, m *vm.Machine) (journal pivot.JournalContent) {
	t.Helper()
	data, err := m.ReadFile(vm.VarDir + "/lib/pivot/journal.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &journal); err != nil {
		t.Fatal(err)
	}
	return journal
}

func diskName(t *testing.T) string { return strings.ReplaceAll(t.Name(), "/", "-") }

func boot(t *testing.T, m *vm.Machine, o vm.BootOptions) *vm.BootResult {
	t.Helper()
	b, err := m.Boot(t.Context(), o)
	t.Cleanup(func() {
		if t.Failed() {
			file, err := b.Keep()
			t.Logf("the console of this boot, which %s, is in %s (%v)", cmp.Or(b.Exit, "failed"), file, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func encapsulated(t *testing.T, w bootlab.Want) []byte {
	t.Helper()
	data, err := w.Encapsulated()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func report(t *testing.T, b *vm.BootResult) *vm.Report {
	t.Helper()
	r, err := b.Report()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// testLog copies the relevant lines of a console to the test's log.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if strings.Contains(line, "pivot") || strings.Contains(line, "@@") {
			l.t.Log(strings.TrimSpace(fmt.Sprintf("| %s", line)))
		}
	}
	return len(p), nil
}

// expectSaid checks that the console has shown all of the given texts.
func expectSaid(t *testing.T, b *vm.BootResult, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !b.Said(line) {
			t.Errorf("the console does not say %q", line)
		}
	}
}
