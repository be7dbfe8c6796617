package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/day2"
	"machine-pivot/day2/trial"
	"machine-pivot/firstboot"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/status"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
	systemdunits "machine-pivot/systemd-units"
)

// Machine is the simulated machine. It boots system A and is to become system B.
type Machine struct {
	power
	Boots   int // number of boot IDs so far
	Reboots int // reboots that the process asked for and that happened
	State   State

	disk       *disk
	dir        string    // the physical root directory
	root       string    // root directory of the running deployment
	late       bool      // see LeftToShutdown
	premature  bool      // see Premature
	ignites    bool      // the boot loader has requested Ignition in this boot
	initramfs  bool      // the first boot runs in the initramfs first
	served     bool      // see Served
	built      bool      // see Built
	configured bool      // see Configured
	back       bool      // see TakenBack
	again      bool      // the administrator asks to go forward again
	trial      *trialRun // the new system is deployed on trial; nil: no trial
	grub       bool      // see StaticGRUB
	guarded    bool      // see Guarded
	left       int       // how many times it did not come up
	deadBoots  int       // how many further times the kernel of the new system does not come up
	entries    int       // number of boot entries written; the last is the default
	staged     *pivot.Spec
	locked     bool // the staged deployment is not finalized at shutdown
	rebooting  bool
	change     *change    // a change of the running system; nil: a first boot
	applying   *applying  // a MachineConfig is applied; nil: none
	returning  *returning // afterwards it is rolled back; nil: not
	loss       Loss       // how the boot ended, if by a crash
}

// Variant changes how the machine, or the program on it, behaves.
type Variant func(*Machine)

// TakenBack is a machine with an administrator who, after the first boot, makes the old system the default again, like
// rpm-ostree rollback, and later asks for the new one.
func TakenBack(m *Machine) { m.back = true }

// LeftToShutdown is a program broken on purpose: it does not commit. The staged deployment becomes
// the default only in an orderly shutdown, and the first boot is closed before that.
func LeftToShutdown(m *Machine) { m.late = true }

// Unsynced is a program broken on purpose: it syncs no file.
func Unsynced(m *Machine) { m.disk.Lying = true }

// Premature is a program broken on purpose: it finalizes the deployment while it prepares it.
func Premature(m *Machine) { m.premature = true }

// Served is a machine with a MachineConfig from a config server: Ignition has written the pinning files, readable by
// root only, and the encapsulated MachineConfig has none.
func Served(m *Machine) { m.served = true }

// Built is a machine with a new image that a container build has made. It is imported layer by layer, each imported
// layer is kept, and the origin names a container image.
func Built(m *Machine) { m.built = true }

// Careless is a program broken on purpose: everything that it writes is world-readable.
func Careless(m *Machine) { m.disk.Careless = true }

// The commit checksums of the systems A and B. NewSystems makes these commits.
var (
	commitA = "abd30829a8fed50d0b59e6b9480e38e4fa4c4e5a98e08747c48a786491436fca"
	commitB = "b787c62dbbce6b5db7cbd6cfdbb8fc9d65539fc5c9c1508b66e2648abacf1ff8"
)

const (
	optionsA  = "root=LABEL=root rw quiet"
	argsB     = `nosmt acpi_osi="!Windows 2020"`
	imageB    = "registry.example/os@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	dropIn    = "/etc/crio/crio.conf.d/50-workload-partitioning.conf"
	kubelet   = "/etc/kubernetes/openshift-workload-pinning"
	stateroot = "ostree/deploy/os"
)

// New creates the machine in an empty directory. points are the crashes that it will suffer.
func New(dir string, points []Point, variants ...Variant) (*Machine, error) {
	m := &Machine{dir: dir}
	m.reach = m.reachOf
	m.points = points
	m.disk = &disk{power: &m.power, now: map[string]*inode{}, durable: map[string]*inode{}}
	for _, change := range variants {
		change(m)
	}
	unit, err := systemdunits.Files.ReadFile(systemdunits.FirstBoot)
	if err != nil {
		return nil, err
	}
	etc := []hostfiles.File{
		hostfiles.NewFile(firstboot.EncapsulatedPath, 0o600, m.encapsulated()),
		hostfiles.NewFile(host.UnitInEtc(systemdunits.FirstBoot), 0o644, unit),
		hostfiles.NewFile("/etc/local", 0o644, []byte("a change of this machine\n")),
	}
	switch {
	case m.change != nil:
		before, err := m.change.before()
		if err != nil {
			return nil, err
		}
		etc = append(etc[2:], before...)
	case m.trial != nil:
		etc = append(etc[2:], m.trial.etc()...)
	case m.applying != nil:
		settled, err := m.etcOfA()
		if err != nil {
			return nil, err
		}
		etc = append(etc[2:], settled...)
	}
	if m.guarded {
		etc = append(etc, guardedEtc()...)
	}
	if m.served {
		for path, content := range pinningFiles() {
			etc = append(etc, hostfiles.NewFile(path, pinningMode, []byte(content)))
		}
	}
	if err := m.checkout(systemA(), append(etc, m.changedEntries()...)); err != nil {
		return nil, err
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, stateroot, "var/lib"), 0o755), os.Mkdir(filepath.Join(dir, "boot"), 0o755),
		os.Symlink("loader.1", filepath.Join(dir, "boot/loader")), os.MkdirAll(filepath.Join(dir, "boot/loader.1/entries"), 0o755)); err != nil {
		return nil, err
	}
	if err := m.switchTo(m.systemBefore()); err != nil {
		return nil, err
	}
	switch {
	case m.change != nil:
		return m, m.know(m.deployment(commitA) + "/etc")
	case m.trial != nil && m.grub:
		return m, m.installGRUB()
	case m.applying != nil:
		return m, errors.Join(os.Symlink(m.applying.Repo, filepath.Join(m.dir, "ostree/repo")), m.settleVar())
	}
	if m.guarded {
		if err := m.installGRUB(); err != nil {
			return nil, err
		}
	}
	if !m.initramfs {
		return m, nil
	}
	return m, m.putStamp()
}

// systemA returns the old system in the form of a deployment request.
func systemA() pivot.Spec {
	return pivot.Spec{Commit: commitA, Kargs: kargs.Split(optionsA)}
}

// deployment returns the root directory of a commit's deployment.
func (m *Machine) deployment(commit string) string {
	return filepath.Join(m.dir, stateroot, "deploy", commit+".0")
}

// checkout creates a deployment, without a boot entry.
func (m *Machine) checkout(r pivot.Spec, etc []hostfiles.File) error {
	root := m.deployment(r.Commit)
	if err := writeAll(map[string]string{root + ".origin": origin(r)}); err != nil {
		return err
	}
	err := writeAll(map[string]string{root + "/usr" + shipped: imageHas(r.Commit)})
	if m.applying != nil {
		err = checkoutSystem(root, r.Commit)
	}
	if err != nil {
		return err
	}
	for _, f := range etc {
		if err := put(root, f); err != nil {
			return err
		}
	}
	for link, to := range map[string]string{"sysroot": m.dir, "boot": m.dir + "/boot", "var": m.dir + "/" + stateroot + "/var"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

// origin returns the content of the deployment's origin file.
func origin(r pivot.Spec) string {
	switch {
	case r.Image.Native:
		return "[origin]\ncontainer-image-reference=" + r.Image.Container() + "\n"
	case !r.Image.IsZero():
		return "[origin]\nrefspec=" + r.Commit + "\ncustom-url=pivot://" + r.Image.Reference().String() + "\n"
	}
	return "[origin]\nrefspec=" + r.Commit + "\n"
}

// switchTo makes a deployment the default for the next boot.
func (m *Machine) switchTo(r pivot.Spec) error {
	link := "ostree/boot.1/os/" + r.Commit[:8] + "/0"
	if err := os.MkdirAll(filepath.Dir(filepath.Join(m.dir, link)), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(m.deployment(r.Commit), filepath.Join(m.dir, link)); err != nil && !os.IsExist(err) {
		return err
	}
	options := fmt.Sprintf("%s ostree=/%s", withoutOstree(r.Kargs), link)
	m.entries++
	entry := fmt.Sprintf("title os\nversion %d\noptions %s\nlinux /x\ninitrd /y\n", m.entries, options)
	return writeAll(map[string]string{filepath.Join(m.dir, "boot/loader/entries", "ostree-"+r.Commit[:1]+".conf"): entry})
}

func withoutOstree(l kargs.Line) kargs.Line {
	var rest kargs.Line
	for _, arg := range l {
		if !strings.HasPrefix(arg, "ostree=") {
			rest = append(rest, arg)
		}
	}
	return rest
}

// powerOn boots the default deployment. The old contents of /run are lost.
func (m *Machine) powerOn() error {
	m.Boots++
	m.staged, m.rebooting, m.loss = nil, false, None
	next, err := m.next()
	if err != nil {
		return err
	}
	if next, err = m.chosen(next); err != nil {
		return err
	}
	m.root = next.Path
	if err := errors.Join(os.RemoveAll(m.root+"/run/systemd"), m.ignite()); err != nil {
		return err
	}
	return writeAll(map[string]string{
		m.root + "/run/ostree-booted":              "",
		m.root + "/proc/cmdline":                   next.Entry.Options + "\n",
		m.root + "/proc/sys/kernel/random/boot_id": fmt.Sprintf("boot-%d\n", m.Boots),
		m.root + "/sys/devices/system/cpu/present": "0-3\n",
		m.root + "/proc/sys/crypto/fips_enabled":   "0\n",
	})
}

// start runs the first boot once, in the initramfs if early, else in the booted system. It returns
// the error of the first boot; m.loss says whether it was killed.
func (m *Machine) start(early bool) error {
	return m.process(func(ctx context.Context) error {
		b := firstboot.FirstBoot{Machine: m.parts(), File: firstboot.EncapsulatedPath}
		b.Again = m.again && m.runs(commitA)
		if early {
			b.Place, b.Engine = firstboot.Initramfs{Early: place{initramfs.New(m.root)}, Disk: m.disk}, direct{m}
		}
		return b.Run(ctx)
	})
}

// process runs a program once. It returns the program's error; m.loss says whether it was killed.
func (m *Machine) process(run func(context.Context) error) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m.cancel, m.dead, m.loss = cancel, false, None
	m.step, m.stopped = "", nil
	defer func() {
		switch r := recover().(type) {
		case nil:
		case crashed:
			m.loss = r.loss
		default:
			panic(r)
		}
	}()
	return run(ctx)
}

// parts returns the dependencies of the program.
func (m *Machine) parts() *machine.Machine {
	h := host.New(m.root)
	h.Disk, h.Reboot = m.disk, m.reboot
	h.GrubWrites = func(string) error { return nil } // memory is no disk
	h.Run = func(ctx context.Context, argv ...string) ([]byte, error) { return m.run(ctx, argv) }
	journal := pivot.JournalIn(m.root)
	journal.Disk = m.disk
	progress := &pivot.Progress{Journal: journal, Now: now, Emit: m.began}
	if m.served {
		progress.Emit = func(e pivot.Event) { m.began(e); _ = status.Of(e).Write(m.root) }
	}
	parts := &machine.Machine{Host: h, Images: m, Engine: m, Progress: progress, Contributors: m.contributors(), Features: []machine.Feature{day2.Live(), trial.Feature()}}
	if m.change != nil {
		parts.Systemd = manager{m}
	}
	return parts
}

func (m *Machine) reboot(ctx context.Context) error {
	if m.late {
		if err := m.close(); err != nil {
			return err
		}
	}
	if err := errors.Join(ctx.Err(), m.judgeByNewest()); err != nil {
		return err
	}
	return m.effect("reboot", nil, func() error {
		m.rebooting = true
		m.cancel() // systemd stops the unit on its way down
		return nil
	})
}

// close closes the first boot without checking which system runs.
func (m *Machine) close() error {
	journal := m.parts().Progress.Journal
	r, err := journal.Load()
	if err != nil {
		return err
	}
	r.Phase = pivot.PhaseDone
	if err := journal.Save(r); err != nil {
		return err
	}
	file := filepath.Join(m.root, firstboot.EncapsulatedPath)
	return hostfiles.Rename(m.disk, file, file+".bak")
}

func writeAll(files map[string]string) error {
	for path, content := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
