package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/day2"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// applying is a machine after its first boot. It runs image A with one MachineConfig. Another one is applied, which
// selects image B with kernel arguments of its own and changes entries of every kind.
type applying struct {
	Repo      string // has the commits of both images
	Projected bool   // this boot has projected the entries that its system carries
	Early     bool   // see RecordedTooEarly
}

// Applied is such a machine. repo is a repository made by NewSystems.
func Applied(repo string) Variant {
	return func(m *Machine) { m.applying = &applying{Repo: repo} }
}

// RecordedTooEarly is a program broken on purpose: it records a MachineConfig before the commit. It
// needs the variant Applied.
func RecordedTooEarly(m *Machine) { m.applying.Early = true }

// brings returns the kernel argument in the image of a commit; "" if it has none.
func (a *applying) brings(commit string) string {
	if a == nil {
		return ""
	}
	return "of.image=" + commit[:1]
}

// prepared writes the record before the commit, for RecordedTooEarly.
func (m *Machine) prepared(r pivot.Spec) error {
	if m.applying == nil || !m.applying.Early {
		return nil
	}
	record := slices.IndexFunc(r.Entries, func(f hostfiles.File) bool { return f.Path == machineconfig.RecordPath })
	return hostfiles.Replace(m.disk, m.root+machineconfig.RecordPath, r.Entries[record].Content, 0o600)
}

// liveApply powers the machine on until the second MachineConfig is applied. It checks, in addition
// to the promises of a first boot:
//
//   - the /etc of each system that runs or is the default is exactly that of one MachineConfig,
//     with its record and its kernel arguments;
//   - once a boot has projected what its system carries, /var matches;
//   - in the end verify finds no difference.
func (m *Machine) liveApply() error {
	err := m.untilOver(2, func(ctx context.Context) (over bool, err error) {
		changed, err := m.runApply(ctx)
		return err == nil && !changed, err
	})
	if err != nil {
		return err
	}
	return m.arrivedAndVerified()
}

// untilOver powers the machine on until the program reports that nothing is left to do. In each boot
// the program is started once the entries that the system carries are projected. bound limits the
// number of boots of a life without crashes.
func (m *Machine) untilOver(bound int, program func(context.Context) (over bool, err error)) error {
	for _, p := range m.points {
		if p.Loss.reboots() {
			bound++
		}
	}
	for m.Boots < bound+m.detours() {
		if err := m.powerOn(); err != nil {
			return err
		}
		m.applying.Projected = false
		over, err := m.projectedBoot(program)
		if err != nil {
			return fmt.Errorf("boot %d: %w", m.Boots, err)
		}
		if over {
			return nil
		}
	}
	return fmt.Errorf("not over after %d boots", m.Boots)
}

// projectedBoot runs one boot, until it ends or nothing is left to do.
func (m *Machine) projectedBoot(program func(context.Context) (over bool, err error)) (over bool, err error) {
	for n := range maxStarts {
		if err := m.noteState(n); err != nil {
			return false, err
		}
		err := m.process(func(ctx context.Context) (err error) {
			if !m.applying.Projected {
				return m.projectOnBoot()
			}
			over, err = program(ctx)
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
		case over:
			return true, nil
		}
	}
	return false, fmt.Errorf("still at it after %d starts", maxStarts)
}

// projectOnBoot does what the unit does before services start. It is repeated if it was killed.
func (m *Machine) projectOnBoot() error {
	parts := m.parts()
	_, err := parts.Project(func(string) {})
	if err == nil {
		m.applying.Projected = true
		err = m.wholeVar()
	}
	return err
}

func (m *Machine) runApply(ctx context.Context) (changed bool, err error) {
	parts := m.parts()
	parts.ImageKargs = settings.ImageKargsApply
	a := day2.Apply{Machine: parts, Config: day2.Config{File: "mc.json", Data: []byte(secondConfig())}, When: day2.RebootNow, Unsupported: machineconfig.Warn}
	return a.Run(ctx, day2.RunOptions{})
}

// wholeNow checks each system that can boot, among them the running one.
func (m *Machine) wholeNow() error {
	all, err := ostree.OpenSysroot(m.dir).Deployments()
	if err != nil {
		return err
	}
	for _, d := range all {
		if err := errors.Join(m.whole(d.Path), m.wholeApplied(d.Path)); err != nil {
			return err
		}
	}
	return m.secretHiddenIfAny()
}

// arrivedAndVerified checks the machine after the program reported that the second MachineConfig is
// applied.
func (m *Machine) arrivedAndVerified() error { return errors.Join(m.arrived(), m.verified()) }

// verified returns an error unless verify finds exactly the wanted differences.
func (m *Machine) verified(want ...string) error {
	parts := m.parts()
	differences, err := parts.Verify(context.Background())
	if got := pivot.Texts(differences); err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("verify says %q, want %q", got, want)
	}
	return err
}

// checkoutSystem writes the files of a commit's image into its deployment, and copies /usr/etc to
// /etc.
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

// mergeWhole is merge for a machine of Applied, where unit links and removals matter. It merges
// like libostree: entries that equal the running image's are taken from the new image.
func (m *Machine) mergeWhole(r pivot.Spec) error {
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
	// Remove what an earlier attempt left.
	if err := os.RemoveAll(m.deployment(r.Commit) + "/etc"); err != nil {
		return err
	}
	return m.checkout(r, slices.Concat(ordered(kept), ordered(r.Entries)))
}

// ordered sorts entries into an order in which they can be created: removals from the bottom up,
// then directories before their contents.
func ordered(entries []hostfiles.File) []hostfiles.File {
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

// setPassword sets the password of the only user in /etc/shadow.
func setPassword(root string, f hostfiles.File) error {
	hash := "*"
	if f.Kind == hostfiles.KindPassword {
		hash = string(f.Content)
	}
	return os.WriteFile(root+f.OnDisk(), []byte(shadowWith(hash)), 0o600)
}

// etcOfA returns the entries of the running system's /etc before the second MachineConfig is
// applied.
func (m *Machine) etcOfA() ([]hostfiles.File, error) {
	desired, report := machineconfig.ParseRecord([]byte(firstConfig), machineconfig.Host{})
	if report.Failed() {
		return nil, report.Err("the first MachineConfig")
	}
	carriers, err := carriersOf(desired.Entries)
	etc := []hostfiles.File{
		hostfiles.NewFile(machineconfig.RecordPath, 0o600, []byte(firstConfig)),
		hostfiles.NewFile("/etc/shadow", 0o600, []byte(shadowWith("$6$first"))),
	}
	for path, d := range etcA {
		etc = append(etc, d.file(path))
	}
	return ordered(append(etc, carriers...)), err
}

// settleVar creates the machine's own /var and projects what A carries.
func (m *Machine) settleVar() error {
	root := m.deployment(commitA)
	shared := filepath.Join(m.dir, stateroot, "var")
	for path, d := range ownVar {
		if err := put(shared, d.file(strings.TrimPrefix(path, "/var"))); err != nil {
			return err
		}
	}
	parts := &machine.Machine{Host: host.New(root)}
	_, err := parts.Project(func(string) {})
	return errors.Join(err, m.know(root+"/etc"), m.know(shared))
}

// systemBefore returns the old system, with the kernel arguments of the first MachineConfig.
func (m *Machine) systemBefore() pivot.Spec {
	r := systemA()
	if m.applying != nil {
		r.Kargs = append(r.Kargs, "first=1", m.applying.brings(commitA))
	}
	return r
}
