package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"machine-pivot/day2"
	"machine-pivot/day2/trial"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/pid1"
	"machine-pivot/pivot"
)

// trialRun is a machine that tries the new system after its first boot.
type trialRun struct {
	outcome Outcome
	once    string        // the boot entry for the next boot only
	up      time.Duration // since the kernel started
	kept    bool          // the journal says that the new system is kept
	early   bool          // see DefaultTooEarly
	loader  bool          // the boot loader supports one-shot entries
	hand    bool          // the user selects the old system in the boot menu
	left    bool          // the last boot ended with the reboot that the program has asked for
}

// Outcome is how the trial of the new system ends.
type Outcome int

const (
	Confirmed Outcome = iota // the new system passes its checks
	TimedOut                 // a check fails until the time limit
	Panics                   // the kernel does not come up; the user power-cycles the machine
)

// Tried is a machine that tries the new system with the given outcome. Its boot loader supports
// one-shot entries.
func Tried(outcome Outcome) Variant {
	return func(m *Machine) {
		m.trial = &trialRun{outcome: outcome, loader: true}
		m.configured = true
	}
}

// WithoutOneShot is a boot loader that always boots its default. It needs the variant Tried.
func WithoutOneShot(m *Machine) { m.trial.loader = false }

// DefaultTooEarly is a program broken on purpose: it makes the new system the default before it is
// confirmed. It needs the variant Tried.
func DefaultTooEarly(m *Machine) { m.trial.early = true }

const unitPath = "/etc/systemd/system/" + trial.Unit

// etc returns the trial's unit, enabled.
func (t *trialRun) etc() []hostfiles.File {
	return []hostfiles.File{
		hostfiles.NewFile(unitPath, 0o644, nil),
		hostfiles.NewDirectory("/etc/systemd/system/sysinit.target.wants", 0o755),
		hostfiles.NewLink("/etc/systemd/system/sysinit.target.wants/"+trial.Unit, unitPath),
	}
}

// chosen returns the deployment that the boot loader boots: the default, unless there is a one-shot
// entry or a selection in the boot menu.
func (m *Machine) chosen(next ostree.Deployment) (ostree.Deployment, error) {
	once, hand := "", false
	if t := m.trial; t != nil {
		once, hand = t.once, t.hand
		t.once, t.hand, t.up = "", false, 0
	}
	if m.grub {
		var err error
		if once, err = m.startedOnce(); err != nil {
			return next, err
		}
	}
	all, err := ostree.OpenSysroot(m.dir).Deployments()
	for _, d := range all {
		if d.Entry.File == once || hand && d.Checksum.String() == commitA {
			next = d
		}
	}
	return next, err
}

// run runs one of the programs that only a trial needs.
func (t *trialRun) run(ctx context.Context, m *Machine, argv []string) ([]byte, error) {
	switch line := strings.Join(argv, " "); {
	case strings.HasPrefix(line, "ostree admin undeploy "):
		return nil, m.effect("undeploy", nil, unlessStopped(ctx, func() error { return m.undeploy(argv[3]) }))
	case strings.HasPrefix(line, "bootctl set-oneshot "):
		return nil, m.effect("one shot", nil, unlessStopped(ctx, func() error { t.once = argv[2]; return writeAll(map[string]string{m.root + loaderOnce: argv[2]}) }))
	case argv[0] == "/bin/sh" && t.outcome == TimedOut:
		return nil, errors.New("exit status 1")
	case argv[0] == "/bin/sh":
		return nil, nil
	}
	return nil, fmt.Errorf("this machine has no %q", argv)
}

func (m *Machine) undeploy(index string) error {
	d, err := m.indexed(index)
	if err != nil {
		return err
	}
	return errors.Join(os.Remove(filepath.Join(m.dir, "boot/loader/entries", d.Entry.File)), os.RemoveAll(d.Path), os.Remove(d.Path+".origin"))
}

// liveTrial powers the machine on until the trial has ended. It checks, in addition to the promises
// of a first boot:
//
//   - the new system is the default only if it is confirmed or on trial;
//   - if the new system fails or never comes up, the old one runs, with the reason in the journal,
//     and the new one is removed;
//   - once the journal says that the new system is kept, it stays the default.
func (m *Machine) liveTrial() error {
	bound := 4
	for _, p := range m.points {
		if p.Loss.reboots() {
			bound += 3 // the trial, the old system again, and the next trial
		}
	}
	for m.Boots < bound {
		if err := m.powerOn(); err != nil {
			return err
		}
		if err := errors.Join(m.whole(m.root), m.secretHidden(), m.loaderFile()); err != nil {
			return fmt.Errorf("boot %d: %w", m.Boots, err)
		}
		if m.trial.outcome == Panics && m.runs(commitB) {
			if err := errors.Join(m.panicked(), m.disk.lose(PowerCut)); err != nil {
				return err
			}
			continue
		}
		over, err := m.bootTrial()
		if err != nil {
			return fmt.Errorf("boot %d: %w", m.Boots, err)
		}
		if over {
			return m.ended()
		}
	}
	return fmt.Errorf("the trial never ends: %d boots", m.Boots)
}

// panicked is a boot with a kernel that does not come up. The user must select the old system in the boot menu if the
// new one is the default: without one-shot entries, or if a crash prevented a change of the default. Nobody is there
// after a reboot by a program that can enter the new system once.
func (m *Machine) panicked() error {
	all, err := ostree.OpenSysroot(m.dir).Deployments()
	if err != nil {
		return err
	}
	once := m.trial.loader || m.grub
	m.trial.hand = all[0].Checksum.String() == commitB && !(once && m.trial.left)
	return nil
}

func (m *Machine) loaderFile() error {
	if !m.trial.loader {
		return nil
	}
	return errors.Join(os.RemoveAll(m.root+loaderOnce), writeAll(map[string]string{
		m.root + loaderFeatures:     "\x06\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00",
		m.root + "/usr/bin/bootctl": "",
	}))
}

// EFI variables of the boot loader interface.
const (
	loaderFeatures = "/sys/firmware/efi/efivars/LoaderFeatures-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
	loaderOnce     = "/sys/firmware/efi/efivars/LoaderEntryOneShot-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
)

// bootTrial runs one boot, until it or the trial ends.
func (m *Machine) bootTrial() (over bool, err error) {
	m.trial.left = false
	for n := range maxStarts {
		if err := m.noteState(n); err != nil {
			return false, err
		}
		over, program := m.program()
		if over {
			return true, nil
		}
		err := m.process(program)
		if m.trial.early && m.rebooting {
			err = errors.Join(err, m.setDefault("1"))
		}
		next, nerr := m.next()
		if nerr == nil {
			nerr = errors.Join(m.whole(next.Path), m.mayBoot(next), m.secretHidden())
		}
		switch {
		case nerr != nil:
			return false, fmt.Errorf("what boots next: %w", nerr)
		case m.loss.reboots():
			return false, m.down()
		case m.rebooting:
			m.Reboots++
			m.trial.left = true
			return false, m.shutdown()
		case m.loss == Kill, err == nil, fault.KindOf(err).Transient():
			continue
		}
		return false, err
	}
	return false, fmt.Errorf("still at it after %d starts", maxStarts)
}

// program returns what runs next in this boot: the trial's unit if its stamp exists, else the
// command that starts the trial, until the trial has ended.
func (m *Machine) program() (over bool, program func(context.Context) error) {
	parts := m.parts()
	parts.Host.Uptime = func() (time.Duration, error) { return m.trial.up, nil }
	if _, err := os.Stat(filepath.Join(m.root, pivot.StateDir, trial.Name)); err == nil {
		t := trial.Program{Machine: parts}
		t.Sleep = func(ctx context.Context, _ time.Duration) error { m.trial.up += 5 * time.Minute; return ctx.Err() }
		// A trial that waits for its reboot has ended with the process that asks for the reboot.
		if r, err := parts.Progress.Journal.Load(); err != nil || r.Phase != pivot.PhaseCommitted || !m.runs(commitA) || r.BootID != pid1.StartID(fmt.Sprintf("boot-%d", m.Boots)) {
			return false, t.Run
		}
	} else if m.decided(parts.Progress.Journal) {
		return true, nil
	}
	parts.Given = machine.Given{"try": {"10m"}, "confirm": {"auto"}, "check": {"check"}}
	r := day2.Rebase{Machine: parts, Image: imageB, Append: []string{"nosmt", `acpi_osi="!Windows 2020"`}, Reboot: true}
	return false, func(ctx context.Context) error { _, err := r.Run(ctx, day2.RunOptions{}); return err }
}

// decided reports whether the trial has ended as the outcome demands.
func (m *Machine) decided(journal pivot.Journal) bool {
	r, err := journal.Load()
	if err != nil {
		return false
	}
	if r.Phase == pivot.PhaseDone {
		m.trial.kept = true
		return true
	}
	if r.Phase != pivot.PhaseFailed || r.Error == nil {
		return false
	}
	return m.trial.outcome == TimedOut && strings.Contains(r.Error.Message, `check "check" fails`) ||
		m.trial.outcome == Panics && strings.Contains(r.Error.Message, "it never came up")
}

// mayBoot returns an error if the new system is the default but neither on trial nor confirmed.
func (m *Machine) mayBoot(next ostree.Deployment) error {
	if next.Checksum.String() != commitB {
		return nil
	}
	if m.trial.early {
		return nil // later checks of the sweep must notice
	}
	r, err := pivot.JournalIn(m.root).Load()
	switch {
	case err != nil:
		return err
	case r.Phase == pivot.PhaseDone, r.Held() && r.Phase != pivot.PhaseFailed:
		return nil
	}
	return fmt.Errorf("the new system is the default, and the journal says %s", r.Phase)
}

// ended checks a machine after its trial.
func (m *Machine) ended() error {
	all, err := ostree.OpenSysroot(m.dir).Deployments()
	if err != nil {
		return err
	}
	def := all[0].Checksum.String()
	switch {
	case m.trial.kept && (!m.runs(commitB) || def != commitB || m.trial.outcome != Confirmed):
		return fmt.Errorf("the journal says that %.1s is kept, %.1s is the default", filepath.Base(m.root), def)
	case !m.trial.kept && (!m.runs(commitA) || def != commitA || len(all) != 1):
		return fmt.Errorf("the trial has failed in %.1s, %.1s is the default of %d", filepath.Base(m.root), def, len(all))
	}
	return errors.Join(m.grubAsBefore(), m.noCopiesLeft())
}
