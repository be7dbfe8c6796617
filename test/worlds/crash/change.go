package crash

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/day2"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
)

// change is a change of the running system, with the service that reads the changed files.
type change struct {
	refused bool   // the service rejects the new configuration
	runs    bool   // the service is running
	loaded  string // the configuration that the service has loaded
	units   string // the unit file that systemd has loaded
	outside bool   // entries outside of /etc change, too
}

// Changed is a machine on which a MachineConfig that needs no reboot is applied: with entries of
// every kind, and a service that reloads. In each boot a unit finishes an interrupted change before
// the service starts.
func Changed(m *Machine) { m.change = &change{} }

// Refused is Changed with a service that rejects the change at runtime.
func Refused(m *Machine) { m.change = &change{refused: true} }

// Unjournaled is a program broken on purpose: it changes the running system without a journal.
func Unjournaled(m *Machine) { m.disk.Without = filepath.Base(day2.LiveJournalPath) }

const changeRules = `
files:
- path: /etc/app
  actions: [{type: Reload, reload: {serviceName: app.service}}]
- path: /etc/shipped
  actions: [{type: None}]
- path: /var/app
  actions: [{type: None}]
units:
- name: app.service
  actions: [{type: Reload, reload: {serviceName: app.service}}]
`

// before returns the entries of the running system before the change.
func (c *change) before() ([]hostfiles.File, error) {
	carried, err := c.carried()
	return slices.Concat(oldEntries(), carried, []hostfiles.File{
		hostfiles.NewFile(disruption.RulesPath, 0o644, []byte(changeRules)),
		hostfiles.NewFile(machineconfig.RecordPath, 0o600, configOf(append(oldEntries(), c.oldOutside()...))),
	}), err
}

const unitFile = "/etc/systemd/system/app.service"

func oldEntries() []hostfiles.File {
	return []hostfiles.File{
		hostfiles.NewDirectory("/etc/app", 0o755),
		hostfiles.NewFile("/etc/app/conf", 0o644, []byte("old")),
		hostfiles.NewFile("/etc/app/removed", 0o644, []byte("old")),
		hostfiles.NewFile(shipped, 0o644, []byte("changed")),
	}
}

func newEntries() []hostfiles.File {
	return []hostfiles.File{
		hostfiles.NewDirectory("/etc/app", 0o750),
		hostfiles.NewFile("/etc/app/conf", 0o600, []byte(pinningFiles()[dropIn])),
		hostfiles.NewFile("/etc/app/made/file", 0o644, []byte("new")),
		hostfiles.NewLink("/etc/app/link", "conf"),
		hostfiles.NewFile(unitFile, 0o644, []byte("[Service]\nExecStart=/bin/app\n")),
	}
}

// configOf returns a MachineConfig with the given entries.
func configOf(entries []hostfiles.File) []byte {
	var files, directories, links, users string
	for _, f := range entries {
		switch f.Kind {
		case hostfiles.KindDirectory:
			directories += fmt.Sprintf(`,{"path":%q,"mode":%d}`, f.Path, f.Mode)
		case hostfiles.KindLink:
			links += fmt.Sprintf(`,{"path":%q,"target":%q}`, f.Path, f.Target)
		case hostfiles.KindPassword:
			users += fmt.Sprintf(`,{"name":%q,"passwordHash":%q}`, filepath.Base(f.Path), f.Content)
		default:
			files += fmt.Sprintf(`,{"path":%q,"mode":%d,"contents":{"source":"data:;base64,%s"}}`, f.Path, f.Mode, base64.StdEncoding.EncodeToString(f.Content))
		}
	}
	list := func(items string) string { return "[" + strings.TrimPrefix(items, ",") + "]" }
	return fmt.Appendf(nil, `{"spec":{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":%s,"directories":%s,"links":%s},"passwd":{"users":%s}}}}`,
		list(files), list(directories), list(links), list(users))
}

// know registers the existing files below a directory with the disk, as durable.
func (m *Machine) know(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		f, _, err := hostfiles.Read(path, "")
		n := &inode{content: f.Content, durable: f.Content, mode: f.Mode, target: f.Target, uid: f.UID, gid: f.GID}
		switch f.Kind {
		case hostfiles.KindDirectory:
			n.mode |= fs.ModeDir
		case hostfiles.KindLink:
			n.mode |= fs.ModeSymlink
		}
		m.disk.now[path], m.disk.durable[path] = n, n
		return err
	})
}

// liveChange powers the machine on until the MachineConfig is applied or refused. The error names
// the promise that was broken:
//
//   - a service starts with the old configuration or the new one, complete, unless the unit that
//     finishes the change was itself killed;
//   - the command that applies the MachineConfig, also after a crash, ends with the new configuration, its record, and
//     a service that has loaded it; if the service refuses, with the old configuration;
//   - the secret is never readable by others than root, and no copy of it is left.
func (m *Machine) liveChange() error {
	for m.Boots <= len(m.points)+m.crashes+1 {
		if err := m.powerOn(); err != nil {
			return err
		}
		m.change.runs = false
		ended, err := m.changedBoot()
		if err != nil {
			return fmt.Errorf("boot %d: %w", m.Boots, err)
		}
		if ended {
			return nil
		}
		if err := m.down(); err != nil {
			return err
		}
	}
	return fmt.Errorf("not applied after %d boots", m.Boots)
}

// changedBoot runs one boot: the unit, the service, and the command that applies.
func (m *Machine) changedBoot() (ended bool, err error) {
	if err := m.noteState(0); err != nil {
		return false, err
	}
	err = m.process(func(ctx context.Context) error {
		parts := m.parts()
		_, err := day2.Finish(ctx, parts)
		return errors.Join(err, m.project())
	})
	killed := m.loss == Kill || fault.KindOf(err).Transient()
	switch {
	case m.loss.reboots():
		return false, m.secretHiddenIfAny()
	case err != nil && !killed:
		return false, err
	}
	if _, err := m.wholeChange(); err != nil && !killed {
		return false, fmt.Errorf("a service would start with a mixture: %w", err)
	}
	m.change.runs, m.change.loaded, m.change.units = true, m.configuration(), m.unitText()
	for n := range maxStarts {
		if err := m.noteState(n + 1); err != nil {
			return false, err
		}
		err := m.process(func(ctx context.Context) error {
			if err := m.settle(); err != nil {
				return err
			}
			a := day2.Apply{Machine: m.parts(), Config: day2.Config{File: "mc.json", Data: configOf(append(newEntries(), m.change.newOutside()...))}, When: day2.RebootNever}
			_, err := a.Run(ctx, day2.RunOptions{})
			return err
		})
		if serr := m.secretHiddenIfAny(); serr != nil {
			return false, serr
		}
		switch {
		case m.loss.reboots():
			return false, nil
		case m.loss == Kill, fault.KindOf(err).Transient():
			continue
		case err != nil && (!m.change.refused || !strings.Contains(err.Error(), "all of the change is taken back")):
			return false, err
		}
		return true, m.changeArrived(err != nil)
	}
	return false, fmt.Errorf("still at it after %d starts", maxStarts)
}

// secretHiddenIfAny is secretHidden, but no secret at all is no error.
func (m *Machine) secretHiddenIfAny() error {
	if err := m.secretHidden(); err != nil && !strings.Contains(err.Error(), "nowhere") {
		return err
	}
	return nil
}

// wholeChange returns an error unless the running system has exactly what one MachineConfig asks
// for. isNew says which one.
func (m *Machine) wholeChange() (isNew bool, err error) {
	content, err := os.ReadFile(m.root + "/etc/app/conf")
	if err != nil {
		return false, err
	}
	isNew = string(content) != "old"
	want, never := oldEntries(), newEntries()
	if isNew {
		want, never = append(newEntries(), hostfiles.NewFile(shipped, 0o644, []byte(imageHas(commitA)))), oldEntries()
	}
	known := map[string]bool{}
	for _, f := range want {
		known[f.Path] = true
		got, _, err := hostfiles.Read(m.root, f.Path)
		got.UID, got.GID = 0, 0 // the test may not run as root
		if err != nil || got.Entry != f.Entry {
			return isNew, fmt.Errorf("a mixture: with %.3q in /etc/app/conf %s is a %s (%v)", content, f.Path, got.Entry, err)
		}
	}
	for _, f := range never {
		if _, err := os.Lstat(m.root + f.Path); err == nil && !known[f.Path] {
			return isNew, fmt.Errorf("a mixture: with %.3q in /etc/app/conf there is %s", content, f.Path)
		}
	}
	record, err := os.ReadFile(m.root + machineconfig.RecordPath)
	if err == nil && strings.Contains(string(record), "/etc/app/made") != isNew {
		err = fmt.Errorf("a mixture: with %.3q in /etc/app/conf the record is %s", content, record)
	}
	if err == nil {
		err = m.wholeOutside(isNew)
	}
	return isNew, err
}

// changeArrived checks the machine after the program reported success, or that the change was taken
// back.
func (m *Machine) changeArrived(refused bool) error {
	isNew, err := m.wholeChange()
	switch {
	case err != nil:
		return err
	case isNew == refused:
		return fmt.Errorf("refused: %v, and the machine has the new configuration: %v", refused, isNew)
	case m.change.loaded != m.configuration():
		return fmt.Errorf("the service runs with %.3q, and %.3q is there", m.change.loaded, m.configuration())
	case m.change.units != m.unitText():
		return errors.New("systemd does not know the unit that is there")
	}
	left, err := os.ReadDir(m.root + filepath.Dir(day2.LiveJournalPath))
	if err != nil || len(left) != map[bool]int{false: 2, true: 3}[m.change.outside] { // the rules, the record, the carriers
		return fmt.Errorf("something is left: %v (%v)", left, err)
	}
	return nil
}

// configuration returns the file that the service reads.
func (m *Machine) configuration() string {
	content, err := os.ReadFile(m.root + "/etc/app/conf")
	return fmt.Sprint(string(content), err)
}

func (m *Machine) unitText() string {
	text, err := os.ReadFile(m.root + unitFile)
	return fmt.Sprint(string(text), err != nil)
}

// manager is the machine's service manager.
type manager struct{ *Machine }

var _ host.Services = manager{}

// DaemonReload implements host.Services.
func (m manager) DaemonReload(context.Context) error {
	return m.effect("daemon-reload", nil, func() error { m.change.units = m.unitText(); return nil })
}

// Reload implements host.Services.
func (m manager) Reload(_ context.Context, unit string) error {
	return m.effect("reload "+unit, nil, func() error {
		if m.change.refused && m.configuration() != fmt.Sprint("old", error(nil)) {
			return errors.New("it refuses")
		}
		m.change.loaded = m.configuration()
		return nil
	})
}

// Restart implements host.Services.
func (manager) Restart(context.Context, string) error { return errors.New("nobody asks for it") }

// UpdateTrust implements host.Services.
func (manager) UpdateTrust(context.Context) error { return errors.New("nobody asks for it") }

// Starting implements host.Services.
func (m manager) Starting(context.Context) (bool, error) { return !m.change.runs, nil }

// State implements host.Services.
func (m manager) State(context.Context, string) (host.UnitState, error) {
	s := host.UnitState{Load: "loaded", Active: "inactive"}
	if m.change.runs {
		s.Active = "active"
	}
	return s, nil
}
