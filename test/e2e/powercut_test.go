package e2e_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/test/lab"
	"machine-pivot/test/vm"
)

// cuts says how much of a recording is tried.
type cuts struct {
	flush  int // a power cut at each so-manyth flush
	random int // power cuts at random writes of each boot, each in both modes
	boots  int // of the disks that come out, how many are booted to their end
	least  int // how many power cuts that must come to
}

// long reports whether all points are wanted, not a sample.
func long() bool { return os.Getenv("PIVOT_SWEEP") == "long" }

// powerCuts (P25, P26) records a whole first boot, write by write, and cuts the
// power at each flush and at random writes. What the disk then holds must be the
// old system or the new one, whole; and a machine that boots it must arrive.
func powerCuts(t *testing.T, l *lab.Lab) {
	amount := cuts{flush: 2, random: 12, boots: 3, least: 100}
	if long() {
		amount = cuts{flush: 1, random: 200, boots: 6, least: 800}
	}
	m := machine(t, l, encapsulated(t, l.Wanted()))
	c := newCutter(t, l, m)
	first := c.record(m, "pivot", vm.Rebooted)
	c.new = c.inspect(m.Disk)
	second := c.record(m, "close", vm.PoweredOff)
	c.cut(amount, first, second)
}

// cutter cuts the power of recorded boots.
type cutter struct {
	t        *testing.T
	lab      *lab.Lab
	want     lab.Want
	dir      string
	old, new vm.DiskState

	tried, cameUpNew int
	booted           int       // power-ons of disks that came out
	interesting      []cutDisk // in the order of the recording
}

// newCutter is for a machine that wants what the lab offers.
func newCutter(t *testing.T, l *lab.Lab, m *vm.Machine) *cutter {
	t.Helper()
	c := &cutter{t: t, lab: l, want: l.Wanted(), dir: scratch(t)}
	c.old = c.inspect(m.Disk)
	return c
}

// cut tries recordings and then boots some of the disks that came out.
func (c *cutter) cut(amount cuts, recordings ...recording) {
	c.t.Helper()
	if c.old.Kernel == c.new.Kernel || c.old.Deployment == c.new.Deployment {
		c.t.Fatalf("both systems look the same: %+v, %+v", c.old, c.new)
	}
	start := time.Now()
	for _, r := range recordings {
		c.try(r.Recording, amount)
	}
	examined := time.Since(start)
	if c.tried < amount.least {
		c.t.Errorf("only %d power cuts, want %d", c.tried, amount.least)
	}
	c.bootSome(amount.boots)
	c.t.Logf("swept power cuts of a real machine: %d points, each examined in %.1f s: %d come up old, %d new; %d boots; %.0f s",
		c.tried, examined.Seconds()/float64(max(c.tried, 1)), c.tried-c.cameUpNew, c.cameUpNew, c.booted, time.Since(start).Seconds())
}

// recording is one boot and what it wrote.
type recording struct {
	*vm.Recording
	boot *vm.BootResult
}

// cutDisk names one disk that can be rebuilt.
type cutDisk struct {
	recording *vm.Recording
	cut       vm.Cut
}

// scratch is a directory for disks, in memory where there is room.
func scratch(t *testing.T) string {
	t.Helper()
	const room = 4 << 30 // three disks, sparse, and a log
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || int64(st.Bavail)*int64(st.Bsize) < room {
		return t.TempDir()
	}
	if dir, err := os.MkdirTemp("/dev/shm", "pivot-cuts-*"); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		return dir
	}
	return t.TempDir()
}

func (c *cutter) inspect(disk string) vm.DiskState {
	c.t.Helper()
	s, err := (&vm.Machine{Disk: disk}).Inspect(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// record boots the machine once and keeps what it writes.
func (c *cutter) record(m *vm.Machine, name string, end vm.Reason) recording {
	c.t.Helper()
	dir := filepath.Join(c.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	b := boot(c.t, m, vm.BootOptions{Record: dir})
	if b.Exit != end {
		c.t.Fatalf("the machine %s, want that it %s", b.Exit, end)
	}
	r, err := vm.OpenRecording(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Logf("%s: %d writes, %d flushes", name, r.Len(), len(r.Flushes()))
	return recording{r, b}
}

// try cuts the power at flushes and at random writes.
func (c *cutter) try(r *vm.Recording, amount cuts) {
	random := rand.New(rand.NewPCG(1, 2))
	var points []vm.Cut
	for i, flush := range r.Flushes() {
		if i%amount.flush == 0 {
			points = append(points, vm.Cut{Before: flush, Drop: true, Seed: 1})
		}
	}
	for range amount.random {
		at := random.IntN(r.Len() + 1)
		points = append(points, vm.Cut{Before: at}, vm.Cut{Before: at, Drop: true, Seed: 2})
	}
	slices.SortStableFunc(points, func(a, b vm.Cut) int { return cmp.Compare(a.Before, b.Before) })
	for _, cut := range points {
		if err := c.check(cutDisk{r, cut}); err != nil {
			c.t.Errorf("power cut %s: %v", cut, err)
		}
		c.tried++
	}
}

// check looks at the disk that a power cut leaves.
func (c *cutter) check(d cutDisk) error {
	disk := filepath.Join(c.dir, "cut.img")
	if err := d.recording.Rebuild(c.t.Context(), d.cut, disk); err != nil {
		return err
	}
	m := &vm.Machine{Disk: disk}
	s, err := m.Inspect(c.t.Context())
	if err != nil {
		return err
	}
	isNew := s.Deployment == c.new.Deployment
	whole := c.old
	if isNew {
		whole = c.new
		c.cameUpNew++
	}
	c.interesting = append(c.interesting, d)
	got, want := s.Entries[0].Options, whole.Entries[0].Options
	switch {
	case s.Deployment != whole.Deployment:
		return fmt.Errorf("the next boot is neither system: %s", s.Deployment)
	case s.Kernel != whole.Kernel:
		return errors.New("a mixture: the kernel or initramfs is not the system's")
	case withoutBootDir(got) != withoutBootDir(want):
		return fmt.Errorf("a mixture: options %q, want %q", got, want)
	}
	return c.checkFiles(m, s.Deployment, isNew)
}

// withoutBootDir leaves out which of its two boot directories ostree uses.
func withoutBootDir(options string) string {
	fields := strings.Fields(options)
	for i, f := range fields {
		if strings.HasPrefix(f, "ostree=") {
			fields[i] = "ostree="
		}
	}
	return strings.Join(fields, " ")
}

// checkFiles wants the pinning files in the new system, and none in the old.
func (c *cutter) checkFiles(m *vm.Machine, deployment string, isNew bool) error {
	for _, f := range c.want.PinningFiles() {
		content, err := m.ReadFile(deployment + f.Path)
		if isNew != (err == nil && string(content) == string(f.Content)) {
			return fmt.Errorf("a mixture: new system %v with %s %q (%v)", isNew, f.Path, content, err)
		}
		if !isNew && len(content) > 0 {
			return fmt.Errorf("the old system has %s", f.Path)
		}
	}
	if _, err := m.ReadFile(deployment + "/usr/share/os-version-b"); isNew != (err == nil) {
		return fmt.Errorf("a mixture: new system %v, its marker: %v", isNew, err)
	}
	return nil
}

// bootSome boots some of the disks, spread over all, until each has arrived.
func (c *cutter) bootSome(n int) {
	for i := range n {
		d := c.interesting[(2*i+1)*len(c.interesting)/(2*n)]
		disk := filepath.Join(c.dir, "boot.img")
		if err := d.recording.Rebuild(c.t.Context(), d.cut, disk); err != nil {
			c.t.Fatal(err)
		}
		m := &vm.Machine{Disk: disk, Log: testLog{c.t}}
		boots := 1
		b := boot(c.t, m, vm.BootOptions{})
		for ; b.Exit == vm.Rebooted && boots < 3; boots++ {
			b = boot(c.t, m, vm.BootOptions{})
		}
		c.booted += boots
		c.t.Logf("power cut %s: arrived in %d boots", d.cut, boots)
		c.expectArrived(b)
	}
}

// expectArrived is for a machine that has lost its power once: that may have cost
// an attempt, and the first boot may have been closed just before.
func (c *cutter) expectArrived(b *vm.BootResult) {
	c.t.Helper()
	r := expectWhole(c.t, b, c.want)
	if r.Encapsulated || !r.Closed {
		c.t.Errorf("the first boot is not closed: file there %v, .bak there %v", r.Encapsulated, r.Closed)
	}
	skipped := r.Unit.ActiveState == "inactive" && r.Unit.ConditionResult == "no"
	if r.Unit.ActiveState != "active" && !skipped {
		c.t.Errorf("unit %+v, want it active or skipped", r.Unit)
	}
	if r.Status.Attempt > 2 {
		c.t.Errorf("status %+v, want one attempt more at most", r.Status)
	}
}
