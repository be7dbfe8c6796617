package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/firstboot"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/initramfs"
	"machine-pivot/internal/status"
	"machine-pivot/kargs"
	"machine-pivot/pivot"
)

// Machine is the simulated machine. It boots system A and is asked to become B.
type Machine struct {
	power
	Boots   int // new boot IDs so far
	Reboots int // that the process asked for and that came about
	State   State

	disk       *disk
	dir        string    // the physical root
	root       string    // of the running deployment
	late       bool      // an orderly shutdown finalizes what is staged, after the first boot was closed
	initramfs  bool      // the first boot runs there first
	served     bool      // Ignition has written the pinning files
	built      bool      // a container build has made the image
	configured bool      // entries of each kind are wanted
	back       bool      // once it has arrived, somebody goes back to the old system, and later forward
	again      bool      // on the old system somebody asks to go forward
	trial      *trialRun // the system is asked for on trial; nil: in a first boot
	entries    int       // boot entries written so far: the last is the default
	staged     *pivot.Request
	locked     bool // what is staged is not finalized at shutdown
	rebooting  bool
	change     *change   // what is changed while the system runs; nil: the life is a first boot
	applying   *applying // somebody applies a MachineConfig; nil: nobody does
	loss       Loss      // how the boot ended, if by a crash
}

// Variant changes how the machine, or the program on it, works.
type Variant func(*Machine)

// TakenBack is a machine on which somebody, after the first boot, makes the old system
// the default again, as rpm-ostree rollback does, and later asks to go forward.
func TakenBack(m *Machine) { m.back = true }

// LeftToShutdown is a program that does not commit: what is staged becomes the next boot in
// an orderly shutdown, or never, and the first boot is closed before that. Broken.
func LeftToShutdown(m *Machine) { m.late = true }

// Unsynced is a program that syncs no file. Broken.
func Unsynced(m *Machine) { m.disk.Lying = true }

// Served is a machine whose MachineConfig came from a config server: Ignition has
// written the pinning files, which only root may read, and the encapsulated
// MachineConfig has none.
func Served(m *Machine) { m.served = true }

// Built is a machine that is asked for an image that a container build has made: it comes
// layer by layer, each of which is kept, and the origin names it as a container.
func Built(m *Machine) { m.built = true }

// Careless is a program that lets everybody read what it writes. Broken.
func Careless(m *Machine) { m.disk.Careless = true }

// The systems A and B, as ostree commits.
var (
	commitA = strings.Repeat("a", 64)
	commitB = strings.Repeat("b", 64)
)

const (
	optionsA  = "root=LABEL=root rw quiet"
	argsB     = `nosmt acpi_osi="!Windows 2020"`
	imageB    = "registry.example/os@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	dropIn    = "/etc/crio/crio.conf.d/50-workload-partitioning.conf"
	kubelet   = "/etc/kubernetes/openshift-workload-pinning"
	stateroot = "ostree/deploy/os"
)

// New makes the machine in an empty directory, with the crashes that it will see.
func New(dir string, points []Point, variants ...Variant) (*Machine, error) {
	m := &Machine{dir: dir}
	m.points = points
	m.disk = &disk{power: &m.power, now: map[string]*inode{}, durable: map[string]*inode{}}
	for _, change := range variants {
		change(m)
	}
	etc := []hostfiles.File{
		hostfiles.NewFile(firstboot.EncapsulatedPath, 0o600, m.encapsulated()),
		hostfiles.NewFile("/etc/local", 0o644, []byte("a change of this machine\n")),
	}
	switch {
	case m.change != nil:
		before, err := m.change.before()
		if err != nil {
			return nil, err
		}
		etc = append(etc[1:], before...)
	case m.trial != nil:
		etc = append(etc[1:], m.trial.etc()...)
	case m.applying != nil:
		settled, err := m.etcOfA()
		if err != nil {
			return nil, err
		}
		etc = append(etc[1:], settled...)
	}
	if m.served {
		for path, content := range pinningFiles() {
			etc = append(etc, hostfiles.NewFile(path, pinningMode, []byte(content)))
		}
	}
	if err := m.checkout(systemA(), append(etc, m.changedEntries()...)); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, stateroot, "var/lib"), 0o755); err != nil {
		return nil, err
	}
	if err := m.switchTo(m.systemBefore()); err != nil {
		return nil, err
	}
	switch {
	case m.change != nil:
		return m, m.know(m.deployment(commitA) + "/etc")
	case m.applying != nil:
		return m, errors.Join(os.Symlink(m.applying.Repo, filepath.Join(m.dir, "ostree/repo")), m.settleVar())
	}
	if !m.initramfs {
		return m, nil
	}
	return m, m.putStamp()
}

// systemA is the old system, as a deployment is asked for.
func systemA() pivot.Request {
	return pivot.Request{Commit: commitA, Kargs: kargs.Split(optionsA)}
}

// deployment is the root directory of what is deployed of a commit.
func (m *Machine) deployment(commit string) string {
	return filepath.Join(m.dir, stateroot, "deploy", commit+".0")
}

// checkout makes a deployment that no boot entry names.
func (m *Machine) checkout(r pivot.Request, etc []hostfiles.File) error {
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

// origin is what the deployment's origin says of a request.
func origin(r pivot.Request) string {
	switch {
	case r.Image.Container != "":
		return "[origin]\ncontainer-image-reference=" + r.Image.Container + "\n"
	case !r.Image.IsZero():
		return "[origin]\nrefspec=" + r.Commit + "\ncustom-url=pivot://" + r.Image.Reference + "\n"
	}
	return "[origin]\nrefspec=" + r.Commit + "\n"
}

// switchTo makes a deployment the one that the next boot starts.
func (m *Machine) switchTo(r pivot.Request) error {
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
	return writeAll(map[string]string{filepath.Join(m.dir, "boot/loader/entries", r.Commit[:1]+".conf"): entry})
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

// powerOn starts the default deployment: what was in /run is gone.
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
	if err := m.ignite(); err != nil {
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

// start runs the first boot's program once, in the initramfs or in the started
// system. It returns its error; whether it was killed is in m.loss.
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

// process runs a program once. It returns its error; whether it was killed is in m.loss.
func (m *Machine) process(run func(context.Context) error) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m.cancel, m.dead, m.loss = cancel, false, None
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

// parts are what the program works with.
func (m *Machine) parts() firstboot.Machine {
	h := host.New(m.root)
	h.Disk, h.Reboot = m.disk, m.reboot
	h.Run = func(ctx context.Context, argv ...string) ([]byte, error) {
		if m.trial == nil {
			return nil, errors.New("this machine has no programs")
		}
		return m.trial.run(ctx, m, argv)
	}
	journal := pivot.JournalIn(m.root)
	journal.Disk = m.disk
	progress := &pivot.Progress{Journal: journal, Now: now, Emit: func(pivot.Event) {}}
	if m.served {
		progress.Emit = func(e pivot.Event) { _ = status.Of(e).Write(m.root) }
	}
	parts := firstboot.Machine{Host: h, Images: m, Engine: m, Progress: progress, Contributors: m.contributors()}
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
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.effect("reboot", nil, func() error {
		m.rebooting = true
		m.cancel() // systemd stops the unit on its way down
		return nil
	})
}

// close closes the first boot without a look at what runs.
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
