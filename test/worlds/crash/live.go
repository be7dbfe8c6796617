package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// maxStarts limits the starts of the program in one boot, like the start limit of its unit.
const maxStarts = 10

// live powers the machine on until the first boot is closed. The error names the promise that was
// broken:
//
//   - each boot starts the old system, unchanged, or the new one, complete;
//   - others take the first boot for open in the old system only;
//   - the secret is never readable by others than root;
//   - each crash of the machine costs at most one additional boot;
//   - the first boot is closed on the new system, which is the default, with the journal in phase done;
//   - with a fallback, a power cycle leaves a new system with a dead kernel, with nobody at the menu;
//   - after a rollback the machine stays on the old system until asked to go forward.
func (m *Machine) live() error {
	switch {
	case m.change != nil:
		return m.liveChange()
	case m.trial != nil:
		return m.liveTrial()
	case m.returning != nil:
		return m.liveRollback()
	case m.applying != nil:
		return m.liveApply()
	}
	bound := 2 + 2*m.deadBoots
	for _, p := range m.points {
		if p.Loss.reboots() {
			bound++
		}
		if p.Loss.reboots() && m.guarded {
			bound++ // the crash may use up the one boot of the new system
		}
	}
	if err := m.until(m.arrived, bound); err != nil || !m.back {
		return err
	}
	if err := errors.Join(m.switchTo(systemA()), m.shutdown()); err != nil {
		return err
	}
	if err := m.until(m.stayed, bound+1); err != nil {
		return fmt.Errorf("taken back: %w", err)
	}
	m.again = true
	if err := m.shutdown(); err != nil {
		return err
	}
	if err := m.until(m.arrived, bound+3); err != nil {
		return fmt.Errorf("forward again: %w", err)
	}
	return nil
}

// until powers the machine on until its program has nothing left to do, and then checks the
// promise. bound limits the total number of boots of the machine.
func (m *Machine) until(promise func() error, bound int) error {
	for m.Boots < bound {
		if err := m.powerOn(); err != nil {
			return err
		}
		if err := errors.Join(m.whole(m.root), m.secretHidden()); err != nil {
			return fmt.Errorf("boot %d: %w", m.Boots, err)
		}
		if m.deadBoots > 0 && m.runs(commitB) {
			m.deadBoots--
			m.left++
			if err := m.disk.lose(PowerCut); err != nil {
				return err
			}
			continue
		}
		closed, err := m.boot()
		if err != nil && m.mayGiveUp() {
			return nil
		}
		if err != nil {
			return fmt.Errorf("boot %d: %w", m.Boots, err)
		}
		if closed {
			return promise()
		}
	}
	return fmt.Errorf("not closed after %d boots", m.Boots)
}

// mayGiveUp reports whether a first boot with a fallback may end in the old system: crashes and dead kernels used up
// all attempts. Each enters the new system once.
func (m *Machine) mayGiveUp() bool {
	r, err := pivot.JournalIn(m.root).Load()
	return err == nil && m.guarded && m.runs(commitA) && r.Attempt == pivot.MaxAttempts && m.crashes+m.left >= pivot.MaxAttempts
}

// boot runs one boot, until it ends or the first boot is closed.
func (m *Machine) boot() (closed bool, err error) {
	for n := range maxStarts {
		early := m.initramfs && n == 0
		if m.initramfs && n == 1 {
			if err := m.startSystem(); err != nil {
				return false, err
			}
		}
		if err := m.noteState(n); err != nil {
			return false, err
		}
		err := m.start(early)
		next, nerr := m.next()
		if nerr == nil {
			nerr = m.whole(next.Path)
		}
		if serr := m.secretHidden(); serr != nil {
			return false, serr
		}
		switch {
		case nerr != nil:
			return false, fmt.Errorf("what boots next: %w", nerr)
		case m.loss.reboots():
			return false, m.down()
		case m.rebooting:
			m.Reboots++
			return false, m.shutdown()
		case early, m.loss == Kill, fault.KindOf(err).Transient():
			continue
		case err != nil:
			return false, err
		}
		return true, nil
	}
	return false, fmt.Errorf("still at it after %d starts", maxStarts)
}

// down does what follows a crash that ends the boot.
func (m *Machine) down() error {
	if m.loss == Leave {
		return m.shutdown()
	}
	return m.disk.lose(m.loss)
}

// shutdown is an orderly shutdown: everything is synced, and the staged deployment is finalized
// unless it is locked.
func (m *Machine) shutdown() error {
	if m.staged != nil && !m.locked {
		if err := m.finalize(*m.staged); err != nil {
			return err
		}
	}
	return m.disk.lose(Reset)
}

// whole checks that a deployment is the old system, unchanged, or the new one, complete.
func (m *Machine) whole(root string) error {
	d, err := m.entryOf(root)
	if err != nil {
		return err
	}
	isB := strings.HasPrefix(filepath.Base(root), commitB)
	if got := strings.Contains(d.Entry.Options, argsB); got != isB {
		return fmt.Errorf("a mixture: commit %.1s with options %q", d.Checksum, d.Entry.Options)
	}
	if err := m.wholeIgnition(root, isB); err != nil {
		return err
	}
	if err := m.wholeEntries(root, isB); err != nil {
		return err
	}
	for path, want := range m.pinned() {
		content, err := os.ReadFile(root + path)
		switch {
		case isB && string(content) != want:
			return fmt.Errorf("a mixture: the new system's %s is %q (%v)", path, content, err)
		case !isB && (err == nil) != m.served:
			return fmt.Errorf("a mixture: in the old system %s is %q (%v)", path, content, err)
		}
		entries, _ := os.ReadDir(filepath.Dir(root + path))
		if len(entries) > 1 {
			return fmt.Errorf("a stray file beside %s: %v", path, entries)
		}
	}
	if err := m.wholeRequest(root, isB); err != nil {
		return err
	}
	if local, err := os.ReadFile(root + "/etc/local"); err != nil || len(local) == 0 {
		return fmt.Errorf("the machine's own change in /etc is lost (%v)", err)
	}
	return nil
}

// wholeRequest checks which files of the first boot a deployment has. The old one has the encapsulated MachineConfig,
// or the closed one. The new one never has the name: others take its absence for the end of the first boot.
func (m *Machine) wholeRequest(root string, isB bool) error {
	if m.trial != nil || m.applying != nil {
		return nil
	}
	has := func(path string) bool {
		_, err := os.Stat(root + path)
		return err == nil
	}
	open, closed, committed := has(machineconfig.EncapsulatedPath), has(machineconfig.ClosedPath), has(machineconfig.CommittedPath)
	if isB && (open || !closed && !committed) || !isB && (committed || !open && !closed) {
		return fmt.Errorf("the deployment has the file of an open first boot: %v, of a committed one: %v, of a closed one: %v", open, committed, closed)
	}
	return nil
}

// pinned returns the pinning files that the new system must have.
func (m *Machine) pinned() map[string]string {
	if m.trial != nil {
		return nil
	}
	return pinningFiles()
}

func (m *Machine) entryOf(root string) (ostree.Deployment, error) {
	all, err := ostree.OpenSysroot(m.dir).Deployments()
	for _, d := range all {
		if d.Path == root {
			return d, err
		}
	}
	return ostree.Deployment{}, errors.Join(err, fmt.Errorf("no boot entry leads to %s", root))
}

// runs reports whether the running system is that commit's.
func (m *Machine) runs(commit string) bool { return m.root == m.deployment(commit) }

// stayed checks that the machine stays on the old system after a rollback.
func (m *Machine) stayed() error {
	if !m.runs(commitA) || m.rebooting {
		return errors.New("the program went forward by itself")
	}
	r, err := pivot.JournalIn(m.root).Load()
	if err != nil {
		return err
	}
	if _, err := os.Stat(m.root + firstboot.EncapsulatedPath); err == nil || r.Phase != pivot.PhaseUndone {
		return fmt.Errorf("it is not held: the journal says %s, the first boot is still open: %v", r.Phase, err == nil)
	}
	return nil
}

// arrived checks the machine after the program reported that nothing is left to do.
func (m *Machine) arrived() error {
	if !m.runs(commitB) {
		return errors.New("stranded: the program is content with the old system")
	}
	if open, err := machine.OpenFirstBoot(m.root); err != nil || open != "" {
		return fmt.Errorf("the first boot is not closed: there is %s, %w", open, err)
	}
	r, err := pivot.JournalIn(m.root).Load()
	if err != nil {
		return err
	}
	if r.Phase != pivot.PhaseDone {
		return fmt.Errorf("the journal says %s, want done", r.Phase)
	}
	next, err := m.next()
	if err == nil && next.Checksum.String() != commitB {
		err = errors.New("the first boot is closed, and the next boot is the old system")
	}
	return errors.Join(err, m.grubAsBefore(), m.noCopiesLeft())
}
