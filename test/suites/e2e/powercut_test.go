package e2e_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/settings"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// cuts says how many power cuts of a recording are tried.
type cuts struct {
	flush  int // try a power cut before every flush-th flush
	random int // number of random writes in each boot to try, each with and without lost writes
	boots  int // how many of the resulting disks are booted until they reach their target
	least  int // minimum number of power cuts in total
}

// long reports whether to try all points instead of a sample.
func long() bool { return os.Getenv("PIVOT_SWEEP") == "long" }

// powerCuts (P25, P26) records a complete first boot, write by write, and cuts the power at flushes
// and at random writes. The disk must then have the old or the new system, intact, and a machine
// that boots it must reach its target. A sample of cuts only inspects the disks; "make sweep" also
// boots some of them.
//
// The image has derived layers, as most images have.
func powerCuts(t *testing.T, l *bootlab.Lab) {
	amount := cuts{flush: 8, random: 6, least: 50}
	if long() {
		amount = cuts{flush: 1, random: 200, boots: 6, least: 800}
	}
	t.Run("derived layers", func(t *testing.T) {
		image, err := l.Derived(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := newCutter(t, l, cutImage{reference: image, built: true, apart: true}, bootlab.Setup{})
		first, second := c.recordBoth()
		c.cut(amount, first, second)
	})
	if long() {
		t.Run("undivided", func(t *testing.T) {
			c := newCutter(t, l, cutImage{reference: l.Image}, bootlab.Setup{})
			first, second := c.recordBoth()
			c.cut(amount, first, second)
		})
	}
}

// cutImage is the target image of a machine that loses its power.
type cutImage struct {
	reference string
	built     bool // made by a container build: the image and each of its layers have refs
	apart     bool // each layer gets its ref as soon as it is complete, not together with the others
}

// cutter tries power cuts in recorded boots.
type cutter struct {
	t        *testing.T
	lab      *bootlab.Lab
	image    cutImage
	want     bootlab.Want
	machine  *vm.Machine
	mode     settings.Mode
	dir      string
	old, new vm.DiskState
	power    vm.BootOptions                                               // of each boot
	files    func(disk *vm.Contents, deployment string, isNew bool) error // checks the files in which the systems differ
	arrived  func(*vm.BootResult)                                         // checks the last boot of a machine after a power cut

	tried, cameUpNew int
	fscked           int       // number of repositories checked with ostree fsck
	refs             []string  // refs of the last of these repositories
	booted           int       // number of boots of disks after a power cut
	interesting      []cutDisk // in the order of the recording
}

// newCutter makes a machine with a first boot that pivots to the image.
func newCutter(t *testing.T, l *bootlab.Lab, image cutImage, s bootlab.Setup) *cutter {
	t.Helper()
	c := &cutter{t: t, lab: l, image: image, want: l.Wanted(), mode: cmp.Or(s.Mode, settings.ModeSystem), dir: scratch(t)}
	c.files, c.arrived = c.checkFiles, c.expectArrived
	c.want.Image = image.reference
	s.Encapsulated = encapsulated(t, c.want)
	c.machine = machineWith(t, l, s)
	c.old = c.inspect(c.machine.Disk)
	return c
}

// recordBoth records both boots of a first boot.
func (c *cutter) recordBoth() (first, second recording) {
	c.t.Helper()
	first = c.recordFirst()
	second = c.record("close", vm.PoweredOff)
	expectArrived(c.t, second.boot, c.want)
	if c.image.built {
		expectMerged(c.t, second.boot, 1)
	}
	return first, second
}

// recordFirst records the boot that pivots.
func (c *cutter) recordFirst() recording {
	c.t.Helper()
	first := c.record("pivot", vm.Rebooted)
	expectPivot(c.t, first.boot)
	expectPivotIn(c.t, first.boot, c.mode)
	c.inspectNew()
	return first
}

// inspectNew reads the state of the disk with the new system, which must differ from the old one.
func (c *cutter) inspectNew() {
	c.t.Helper()
	c.new = c.inspect(c.machine.Disk)
	if c.old.Kernel == c.new.Kernel || c.old.Deployment == c.new.Deployment {
		c.t.Fatalf("both systems look the same: %+v, %+v", c.old, c.new)
	}
}

// cut tries power cuts in recordings and then boots some of the resulting disks.
func (c *cutter) cut(amount cuts, recordings ...recording) {
	c.t.Helper()
	start := time.Now()
	for _, r := range recordings {
		c.try(r.Recording, amount)
	}
	examined := time.Since(start)
	if c.tried < amount.least {
		c.t.Errorf("only %d power cuts, want %d", c.tried, amount.least)
	}
	c.bootSome(amount.boots)
	c.t.Logf("swept power cuts of a real machine, %s: %d points, each examined in %.1f s, %d of them with ostree fsck: "+
		"%d come up old, %d new; %d boots; %.0f s", path.Base(c.t.Name()), c.tried, examined.Seconds()/float64(max(c.tried, 1)), c.fscked, c.tried-c.cameUpNew, c.cameUpNew, c.booted, time.Since(start).Seconds())
}

// recording is one boot with its writes.
type recording struct {
	*vm.Recording
	boot *vm.BootResult
}

// cutDisk identifies the disk that a power cut leaves, so that it can be rebuilt.
type cutDisk struct {
	recording *vm.Recording
	cut       vm.Cut
	refs      []string // in its repository
}

// Prefixes of the refs of container images and of their layers.
const (
	imageRefs = "ostree/container/image/"
	layerRefs = "ostree/container/blob/"
)

// below returns the disk's refs with the given prefix, without the prefix.
func (d cutDisk) below(prefix string) (names []string) {
	for _, ref := range d.refs {
		if name, ok := strings.CutPrefix(ref, prefix); ok {
			names = append(names, name)
		}
	}
	return names
}

// scratch returns a temporary directory for disks, in memory if there is enough space.
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

// record boots the machine once and records its writes.
func (c *cutter) record(name string, end vm.Reason) recording {
	c.t.Helper()
	dir := filepath.Join(c.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	power := c.power
	power.Record = dir
	b := boot(c.t, c.machine, power)
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
		if err := c.check(cutDisk{recording: r, cut: cut}); err != nil {
			c.t.Errorf("power cut %s: %v", cut, err)
		}
		c.tried++
	}
}

// check rebuilds the disk that a power cut leaves and checks it.
func (c *cutter) check(d cutDisk) error {
	m := &vm.Machine{Disk: filepath.Join(c.dir, "cut.img")}
	if err := d.recording.Rebuild(c.t.Context(), d.cut, m.Disk); err != nil {
		return err
	}
	disk, err := m.Open(c.t.Context())
	if err != nil {
		return err
	}
	return errors.Join(c.checkDisk(disk, d), disk.Close())
}

// checkDisk checks that a disk has one of the two systems, intact.
func (c *cutter) checkDisk(disk *vm.Contents, d cutDisk) error {
	s, err := disk.State(c.t.Context())
	if err != nil {
		return err
	}
	isNew := s.Deployment == c.new.Deployment
	whole := c.old
	if isNew {
		whole = c.new
		c.cameUpNew++
	}
	d.refs, err = disk.Refs()
	if err != nil {
		return err
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
	if err := c.files(disk, s.Deployment, isNew); err != nil {
		return err
	}
	return c.checkRepo(disk, d, isNew)
}

// fsckEvery is how often a long sweep checks a repository with the refs of the last check: at every fsckEvery-th cut.
const fsckEvery = 4

// checkRepo checks that each ref points to a complete commit and that the new system's image has a ref. To save time,
// it runs ostree fsck only if the refs have changed since the last check. The commit of a new ref was written last, and
// a cut most likely loses that.
func (c *cutter) checkRepo(disk *vm.Contents, d cutDisk, isNew bool) error {
	if images := d.below(imageRefs); c.image.built && isNew && len(images) == 0 {
		return errors.New("the new system's image has no ref")
	}
	if slices.Equal(d.refs, c.refs) && (!long() || c.tried%fsckEvery > 0) {
		return nil
	}
	c.fscked++
	c.refs = d.refs
	return disk.Fsck(c.t.Context())
}

// withoutBootDir removes the value of ostree=, which differs with the boot directory in use.
func withoutBootDir(options string) string {
	fields := strings.Fields(options)
	for i, f := range fields {
		if strings.HasPrefix(f, "ostree=") {
			fields[i] = "ostree="
		}
	}
	return strings.Join(fields, " ")
}

// checkFiles checks that the new system has the pinning files and its marker, and the old system has
// neither.
func (c *cutter) checkFiles(disk *vm.Contents, deployment string, isNew bool) error {
	for _, f := range c.want.PinningFiles() {
		content, err := disk.ReadFile(deployment + f.Path)
		if isNew != (err == nil && string(content) == string(f.Content)) {
			return fmt.Errorf("a mixture: new system %v with %s %q (%v)", isNew, f.Path, content, err)
		}
		if !isNew && len(content) > 0 {
			return fmt.Errorf("the old system has %s", f.Path)
		}
	}
	if _, err := disk.ReadFile(deployment + "/usr/share/os-version-b"); isNew != (err == nil) {
		return fmt.Errorf("a mixture: new system %v, its marker: %v", isNew, err)
	}
	return nil
}

// bootSome boots n of the disks, spread over all cuts, until each has reached its target. If layers
// get their refs separately, there must be a cut between two layers, and its disk is one of these.
func (c *cutter) bootSome(n int) {
	c.t.Helper()
	var midway cutDisk
	if c.image.apart {
		midway = c.midway()
	}
	if n == 0 {
		return
	}
	if c.image.apart {
		n--
		c.boot(midway)
	}
	for i := range n {
		c.boot(c.interesting[(2*i+1)*len(c.interesting)/(2*n)])
	}
}

// midway returns the disk that has the most layers of an image, but not all.
func (c *cutter) midway() (disk cutDisk) {
	c.t.Helper()
	all := len(c.interesting[len(c.interesting)-1].below(layerRefs))
	for _, d := range c.interesting {
		if n := len(d.below(layerRefs)); n < all && n > len(disk.below(layerRefs)) {
			disk = d
		}
	}
	if disk.recording == nil {
		c.t.Fatal("no power cut came between two layers")
	}
	return disk
}

// boot boots a disk until it reaches its target and checks that no layer that it has is fetched
// again.
func (c *cutter) boot(d cutDisk) {
	c.t.Helper()
	disk := filepath.Join(c.dir, "boot.img")
	if err := d.recording.Rebuild(c.t.Context(), d.cut, disk); err != nil {
		c.t.Fatal(err)
	}
	since := c.lab.Registry.Requests()
	m := &vm.Machine{Disk: disk, Log: testLog{c.t}, Power: c.machine.Power}
	boots := 1
	b := boot(c.t, m, c.power)
	for ; b.Exit == vm.Rebooted && boots < 3; boots++ {
		b = boot(c.t, m, c.power)
	}
	c.booted += boots
	kept, pulled := d.below(layerRefs), c.lab.Registry.Pulled(since)
	c.t.Logf("power cut %s: %d layers kept, arrived in %d boots with %d requests", d.cut, len(kept), boots, len(pulled))
	for _, layer := range kept {
		if digest := strings.Replace(layer, "_3A_", ":", 1); slices.Contains(pulled, digest) {
			c.t.Errorf("layer %s was fetched again", digest)
		}
	}
	c.arrived(b)
}

// expectArrived checks a machine after a power cut: it has reached its target. The cut may have cost
// an attempt, and the first boot may have been closed just before the cut.
func (c *cutter) expectArrived(b *vm.BootResult) {
	c.t.Helper()
	r := expectWhole(c.t, b, c.want)
	if c.image.built {
		expectMerged(c.t, b, 1)
	}
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
