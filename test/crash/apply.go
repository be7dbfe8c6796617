package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/firstboot"
	"machine-pivot/internal/encapsulated"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
)

// applying is a machine whose first boot is over. It runs image A from one MachineConfig, and
// somebody applies another one, which brings image B with its own kernel arguments and
// changes a thing of each kind.
type applying struct {
	Repo      string // with the commits of both images
	Projected bool   // this boot has projected what its system carries
	Early     bool   // the record is written before the commit. Broken.
}

// Applied is such a machine. The repository is one of NewSystems.
func Applied(repo string) Variant {
	return func(m *Machine) { m.applying = &applying{Repo: repo} }
}

// RecordedTooEarly is a program that records a MachineConfig before the commit, on a machine
// of Applied. Broken.
func RecordedTooEarly(m *Machine) { m.applying.Early = true }

// brings is the kernel argument that the image of a commit brings; "" if it brings none.
func (a *applying) brings(commit string) string {
	if a == nil {
		return ""
	}
	return "of.image=" + commit[:1]
}

// prepared is what a program that records too early does before the commit.
func (m *Machine) prepared(r pivot.Request) error {
	if m.applying == nil || !m.applying.Early {
		return nil
	}
	record := slices.IndexFunc(r.Entries, func(f hostfiles.File) bool { return f.Path == encapsulated.RecordPath })
	return hostfiles.Replace(m.disk, m.root+encapsulated.RecordPath, r.Entries[record].Content, 0o600)
}

// liveApply powers the machine on, again and again, until somebody who applies the second
// MachineConfig is told that the machine is what it asks for. Promises beside those of a
// first boot:
//
//   - the /etc of each system that runs, or would be booted next, is that of one of the
//     MachineConfigs, entry by entry, with its record, and the arguments are its own;
//   - once a boot has projected what its system carries, /var is what that asks for;
//   - in the end verify has nothing to say.
func (m *Machine) liveApply() error {
	bound := 2
	for _, p := range m.points {
		if p.Loss.reboots() {
			bound++
		}
	}
	for m.Boots < bound {
		if err := m.powerOn(); err != nil {
			return err
		}
		m.applying.Projected = false
		over, err := m.applyBoot()
		if err != nil {
			return fmt.Errorf("boot %d: %w", m.Boots, err)
		}
		if over {
			return errors.Join(m.arrived(), m.verified())
		}
	}
	return fmt.Errorf("not applied after %d boots", m.Boots)
}

// applyBoot is one boot, to its end or until there is nothing left to apply.
func (m *Machine) applyBoot() (over bool, err error) {
	for n := range maxStarts {
		if err := m.noteState(n); err != nil {
			return false, err
		}
		arrived := false
		err := m.process(func(ctx context.Context) (err error) {
			if !m.applying.Projected {
				return m.projects()
			}
			changed, err := m.applies(ctx)
			arrived = err == nil && !changed
			return err
		})
		if werr := m.wholeNow(); werr != nil {
			return false, werr
		}
		switch {
		case m.loss.reboots():
			return false, m.down()
		case m.rebooting:
			m.Reboots++
			return false, m.shutdown()
		case m.loss == Kill, fault.KindOf(err).Transient():
			continue
		case err != nil:
			return false, err
		case arrived:
			return true, nil
		}
	}
	return false, fmt.Errorf("still at it after %d starts", maxStarts)
}

// projects is what the unit does before services start, and who finds it killed.
func (m *Machine) projects() error {
	parts := m.parts()
	_, err := parts.Project(func(string) {})
	if err == nil {
		m.applying.Projected = true
		err = m.wholeVar()
	}
	return err
}

func (m *Machine) applies(ctx context.Context) (changed bool, err error) {
	parts := m.parts()
	parts.ImageKargs = host.ImageKargsApply
	a := firstboot.Apply{Machine: parts, File: "mc.json", Data: []byte(secondConfig()), When: firstboot.RebootNow, Unsupported: encapsulated.Warn}
	return a.Run(ctx)
}

// wholeNow checks the system that runs, and the one that would be booted next.
func (m *Machine) wholeNow() error {
	next, err := m.next()
	if err != nil {
		return err
	}
	for _, root := range []string{m.root, next.Path} {
		if err := errors.Join(m.whole(root), m.wholeApplied(root)); err != nil {
			return err
		}
	}
	return m.secretly()
}

// verified is an error if the program finds a difference.
func (m *Machine) verified() error {
	parts := m.parts()
	differences, err := parts.Verify(context.Background())
	if err == nil && len(differences) > 0 {
		err = fmt.Errorf("verify says: %s", strings.Join(differences, "; "))
	}
	return err
}

// checkoutSystem makes what a commit's image has in its deployment, and in /etc the files
// that it ships there.
func checkoutSystem(root, commit string) error {
	all := map[string]string{}
	for path, content := range systemHas(commit) {
		all[root+path] = content
		if below, ok := strings.CutPrefix(path, "/usr/etc/"); ok {
			all[root+"/etc/"+below] = content
		}
	}
	return writeAll(all)
}

// mergeWhole is merge where links of units and removals count: as libostree merges, what
// the running system has as its image ships it is as the next image ships it.
func (m *Machine) mergeWhole(r pivot.Request) error {
	r, err := r.ForCommit(r.Commit)
	if err != nil {
		return err
	}
	var kept []hostfiles.File
	for path := range describe(m.root, "/etc") {
		f, _, err := hostfiles.Read(m.root, path)
		if err != nil {
			return err
		}
		shipped, ships, err := hostfiles.Read(m.root+"/usr", path)
		if err != nil {
			return err
		}
		if !ships || shipped.Entry != f.Entry {
			kept = append(kept, f)
		}
	}
	// What an attempt before has left of it goes first.
	if err := os.RemoveAll(m.deployment(r.Commit) + "/etc"); err != nil {
		return err
	}
	return m.checkout(r, slices.Concat(inTurn(kept), inTurn(r.Entries)))
}

// inTurn are entries in the order in which they can be made: removals from the bottom up, and
// then directories before what is in them.
func inTurn(entries []hostfiles.File) []hostfiles.File {
	return slices.SortedFunc(slices.Values(entries), func(a, b hostfiles.File) int {
		switch {
		case a.Removes() != b.Removes():
			return map[bool]int{true: -1, false: 1}[a.Removes()]
		case a.Removes():
			return strings.Compare(b.Path, a.Path)
		}
		return strings.Compare(a.Path, b.Path)
	})
}

// setPassword sets the password of the one user of /etc/shadow.
func setPassword(root string, f hostfiles.File) error {
	hash := "*"
	if f.Kind == hostfiles.KindPassword {
		hash = string(f.Content)
	}
	return os.WriteFile(root+f.OnDisk(), []byte(shadowWith(hash)), 0o600)
}

// etcOfA is what the running system has in /etc before the second MachineConfig is applied.
func (m *Machine) etcOfA() ([]hostfiles.File, error) {
	desired, report := encapsulated.ParseRecord([]byte(firstConfig))
	if report.Failed() {
		return nil, report.Err("the first MachineConfig")
	}
	carriers, err := carriersOf(desired.Entries)
	etc := []hostfiles.File{
		hostfiles.NewFile(encapsulated.RecordPath, 0o600, []byte(firstConfig)),
		hostfiles.NewFile("/etc/shadow", 0o600, []byte(shadowWith("$6$first"))),
	}
	for path, d := range etcA {
		etc = append(etc, d.file(path))
	}
	return inTurn(append(etc, carriers...)), err
}

// settleVar makes the machine's own /var, and projects what A carries.
func (m *Machine) settleVar() error {
	root := m.deployment(commitA)
	shared := filepath.Join(m.dir, stateroot, "var")
	for path, d := range ownVar {
		if err := put(shared, d.file(strings.TrimPrefix(path, "/var"))); err != nil {
			return err
		}
	}
	parts := firstboot.Machine{Host: host.New(root)}
	_, err := parts.Project(func(string) {})
	return errors.Join(err, m.know(root+"/etc"), m.know(shared))
}

// systemBefore is the old system, as the first MachineConfig has made it.
func (m *Machine) systemBefore() pivot.Request {
	r := systemA()
	if m.applying != nil {
		r.Kargs = append(r.Kargs, "first=1", m.applying.brings(commitA))
	}
	return r
}
