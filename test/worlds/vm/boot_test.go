package vm_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/vm"
)

// encapsulated is the path at which Ignition writes the MachineConfig.
const encapsulated = "/etc/ignition-machine-config-encapsulated.json"

// TestRebootAndPowerOff boots one disk twice: the first boot ends with a reboot, the second with a power-off. It is
// part of "make nightly", because the boots of test/suites/e2e depend on most parts.
func TestRebootAndPowerOff(t *testing.T) {
	needBoots(t)
	guest := newGuest(t)
	dropIn := vm.TreeFile{Path: "/etc/crio/crio.conf.d/01-test", Mode: 0o640, Content: []byte("[a]\nb = \"c\\n\"\n")}
	m := newMachine(t, guest, vm.DiskSpec{KernelArgs: []string{"harness.first"}, Files: []vm.TreeFile{
		dropIn,
		{Path: encapsulated, Mode: 0o644, Content: []byte("{}")},
		{Path: "/var/lib/a file", Mode: 0o600, Content: []byte("in var")},
	}})

	first := boot(t, m, vm.BootOptions{})
	if first.Exit != vm.Rebooted || first.Said("@@report") {
		t.Fatalf("the guest %s, want that it %s, without a report", first.Exit, vm.Rebooted)
	}
	expectInitramfsNetwork(t, first, "inactive")
	second := boot(t, m, vm.BootOptions{ExtraArgs: []string{"harness.extra", "rd.neednet=1"}, Measure: func(line string) bool {
		return strings.Contains(line, kubeletStarted)
	}})
	expectMeasured(t, first, second)
	expectInitramfsNetwork(t, second, networkUp)
	if second.Exit != vm.PoweredOff {
		t.Fatalf("the guest %s, want that it %s", second.Exit, vm.PoweredOff)
	}
	r, err := second.Report()
	if err != nil {
		t.Fatal(err)
	}
	checkReport(t, r)
	if err := r.HasFile(dropIn); err != nil || r.FilesIn("/etc/crio/crio.conf.d") != 1 {
		t.Errorf("drop-ins are %+v: %v", r.Files, err)
	}
	checkDisk(t, m, guest)
}

// kubeletStarted is what the guest says when the stand-in for kubelet starts.
const kubeletStarted = "@@kubelet started"

// expectMeasured checks that the second boot has the usage of the machine until kubelet started and until the end,
// and the first boot, which was not measured, has none.
func expectMeasured(t *testing.T, first, second *vm.BootResult) {
	t.Helper()
	measured := func(l vm.SerialLine) bool { return l.Usage != nil }
	if first.Usage != (vm.Usage{}) || slices.ContainsFunc(first.Serial, measured) {
		t.Errorf("the first boot was measured: %+v", first.Usage)
	}
	i := slices.IndexFunc(second.Serial, measured)
	if i < 0 || !strings.Contains(second.Serial[i].Text, kubeletStarted) {
		t.Fatalf("the usage is that of line %d", i)
	}
	at, end := *second.Serial[i].Usage, second.Usage
	if at.CPU <= 0 || end.CPU <= at.CPU || at.Read < 1<<20 || end.Read < at.Read || at.Written <= 0 || end.Written <= at.Written {
		t.Errorf("usage %+v when kubelet starts, %+v at the end", at, end)
	}
	t.Logf("usage %+v when kubelet starts, %+v at the end", at, end)
}

// newGuest returns a guest. Its first boot stages a deployment, and its initramfs prints the state of its network.
func newGuest(t *testing.T) *vm.Guest {
	t.Helper()
	const units, modules = "/usr/lib/systemd/system/", "/usr/lib/dracut/modules.d/95netprobe/"
	builder := vm.Builder{Log: t.Output()}
	guest, err := builder.Guest(t.Context(), vm.GuestSpec{Overlay: []vm.TreeFile{
		{Path: units + "pivot-firstboot.service", Mode: 0o644, Source: "testdata/stage-once.service"},
		{Path: units + "multi-user.target.wants/pivot-firstboot.service", Symlink: "../pivot-firstboot.service"},
		{Path: "/usr/libexec/stage-once", Mode: 0o755, Source: "testdata/stage-once"},
		{Path: "/etc/harness", Mode: 0o600, Content: []byte("default\n")},
		{Path: modules + "module-setup.sh", Mode: 0o755, Source: "testdata/95netprobe/module-setup.sh"},
		{Path: modules + "netprobe", Mode: 0o755, Source: "testdata/95netprobe/netprobe"},
		{Path: modules + "netprobe.service", Mode: 0o644, Source: "testdata/95netprobe/netprobe.service"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return guest
}

func newMachine(t *testing.T, guest *vm.Guest, spec vm.DiskSpec) *vm.Machine {
	t.Helper()
	m := &vm.Machine{Disk: filepath.Join(t.TempDir(), "disk.img"), Log: t.Output()}
	start := time.Now()
	if err := guest.Disk(t.Context(), m.Disk, spec); err != nil {
		t.Fatal(err)
	}
	t.Logf("made a disk in %.1f s", time.Since(start).Seconds())
	return m
}

func boot(t *testing.T, m *vm.Machine, o vm.BootOptions) *vm.BootResult {
	t.Helper()
	b, err := m.Boot(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the guest %s after %.1f s", b.Exit, b.Duration.Seconds())
	return b
}

// networkUp is the state that the initramfs prints when its network is up.
const networkUp = "active 10.0.2.15/24"

// expectInitramfsNetwork checks the state of the network in the initramfs. It must be up only if
// a unit starts it or the kernel command line requests it.
func expectInitramfsNetwork(t *testing.T, b *vm.BootResult, state string) {
	t.Helper()
	if !b.Said("@@initramfs network: " + state) {
		t.Errorf("the network in the initramfs is not %q", state)
	}
}

func checkReport(t *testing.T, r *vm.Report) {
	t.Helper()
	if r.Version != "A.1" || r.MarkerB || r.Deployments != 2 {
		t.Errorf("version %q, marker %v, deployments %v, want A.1 twice", r.Version, r.MarkerB, r.Deployed)
	}
	for _, arg := range []string{"root=LABEL=root", "harness.first", "harness.staged", "harness.extra"} {
		if !slices.Contains(strings.Fields(r.Cmdline), arg) {
			t.Errorf("command line %q lacks %s", r.Cmdline, arg)
		}
	}
	if !r.Encapsulated || r.Closed || !r.Online || len(r.BootID) != 36 || r.FailedUnits != "" {
		t.Errorf("report %+v", r)
	}
	if r.Unit.ActiveState != "active" || r.Kubelet.ActiveState != "active" || r.Kubelet.ActiveEnterTimestampMonotonic == 0 {
		t.Errorf("unit %+v, kubelet %+v, want both active", r.Unit, r.Kubelet)
	}
}

func checkDisk(t *testing.T, m *vm.Machine, guest *vm.Guest) {
	t.Helper()
	deployments, err := m.Deployments()
	if err != nil || len(deployments) != 2 {
		t.Fatalf("deployments %v, %v, want two", deployments, err)
	}
	for path, want := range map[string]string{
		vm.VarDir + "/lib/a file":                                       "in var",
		vm.StateRoot + "/deploy/" + guest.CommitA + ".1/etc/harness":    "default\n",
		vm.StateRoot + "/deploy/" + guest.CommitA + ".0" + encapsulated: "{}",
	} {
		if got, err := m.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v, want %q", path, got, err, want)
		}
	}
	if _, err := m.ReadFile("/nothing"); err == nil {
		t.Error("a file that is not there can be read")
	}
}

// TestEnds checks boots that do not end with the guest's own reboot or power-off. It is part of
// "make nightly".
func TestEnds(t *testing.T) {
	needBoots(t)
	m := newMachine(t, newGuest(t), vm.DiskSpec{KernelArgs: []string{"harness.staged"}}) // it stages nothing
	for _, c := range []struct {
		want  vm.Reason
		o     vm.BootOptions
		fails bool
	}{
		{vm.Stopped, vm.BootOptions{StopWhen: func(line string) bool { return strings.Contains(line, "Linux version") }}, false},
		{vm.Stopped, vm.BootOptions{
			ExtraArgs: []string{"harness.network"},
			StopWhen:  func(line string) bool { return strings.Contains(line, networkUp) },
		}, false},
		{vm.TimedOut, vm.BootOptions{Limits: vm.Limits{Total: time.Second}}, true},
		// A complete, idle system: its timers must not count as work.
		{vm.Hung, vm.BootOptions{ExtraArgs: []string{"report.stay"}, Limits: vm.Limits{Idle: 30 * time.Second}}, true},
		{vm.Hung, vm.BootOptions{ExtraArgs: []string{"rdinit=/bin/sh", "--", "-c", `"while :; do :; done"`}, Limits: vm.Limits{Spin: 30 * time.Second}}, true},
		// A kernel that reports a stall again and again; a program writes the reports to /dev/kmsg.
		{vm.Hung, vm.BootOptions{ExtraArgs: []string{"printk.devkmsg=on", "rdinit=/bin/sh", "--", "-c",
			`"while :; do i=0; while [ $((i+=1)) -lt 9999 ]; do :; done; echo '<2>watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [sh:1]' >/dev/kmsg; done"`},
			Limits: vm.Limits{Stuck: 5 * time.Second}}, true},
		{vm.Panicked, vm.BootOptions{ExtraArgs: []string{"rdinit=/usr/bin/false"}}, true},
		{vm.Emergency, vm.BootOptions{ExtraArgs: []string{"rd.systemd.unit=emergency.target"}}, true},
	} {
		b, err := m.Boot(t.Context(), c.o)
		if b.Exit != c.want || (err != nil) != c.fails {
			t.Errorf("the guest %s (%v), want that it %s", b.Exit, err, c.want)
		}
		// On a busy host the shortest limit may pass before the first console line.
		if n := len(b.Serial); err != nil && n > 0 {
			quote := b.Serial[n-1]
			if i := slices.IndexFunc(b.Serial, func(l vm.SerialLine) bool { return strings.Contains(l.Text, "] watchdog: BUG: soft lockup") }); i >= 0 {
				quote = b.Serial[i]
			}
			if !strings.Contains(err.Error(), quote.Text) {
				t.Errorf("the error does not quote the console: %v", err)
			}
		}
		t.Logf("the guest %s after %.1f s", b.Exit, b.Duration.Seconds())
	}
}

// needBoots skips the test if machines cannot be booted here. In CI that is a failure instead.
func needBoots(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots machines; not in a short run")
	}
	if missing := vm.Missing(); len(missing) > 0 {
		need.Lacking(t, "cannot boot machines here: lacking "+strings.Join(missing, ", "))
	}
}
