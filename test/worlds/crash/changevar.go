package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"machine-pivot/day2"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/projection"
)

// ChangedOutside is Changed with entries in /var and a password. The entries that the running
// system carries change with its /etc, and each boot projects them.
func ChangedOutside(m *Machine) { m.change = &change{outside: true} }

// RefusedOutside is Refused with entries in /var and a password.
func RefusedOutside(m *Machine) { m.change = &change{outside: true, refused: true} }

const (
	shadowPath   = "/etc/shadow"
	shadowBefore = "root:*:1::::::\ncore:$y$old:1::::::\nlast:*:1::::::\n"
	projectUnit  = "/etc/systemd/system/pivot-project.service"
)

// oldOutside and newOutside return the entries of the two MachineConfigs outside of /etc.
func (c *change) oldOutside() []hostfiles.File {
	if !c.outside {
		return nil
	}
	return []hostfiles.File{
		hostfiles.NewFile("/var/app/conf", 0o644, []byte("old")),
		hostfiles.NewFile("/var/app/gone", 0o644, []byte("old")),
		hostfiles.NewPassword("core", "$y$old"),
	}
}

func (c *change) newOutside() []hostfiles.File {
	if !c.outside {
		return nil
	}
	return []hostfiles.File{
		hostfiles.NewFile("/var/app/conf", 0o600, []byte("new")),
		hostfiles.NewDirectory("/var/app/made", 0o750),
		hostfiles.NewFile("/var/app/made/file", 0o644, []byte("new")),
		hostfiles.NewPassword("core", "$y$new"),
	}
}

// carried returns the entries in /etc that carry the old entries outside, and the unit that projects them.
func (c *change) carried() ([]hostfiles.File, error) {
	if !c.outside {
		return nil, nil
	}
	carriers, err := projection.Set{}.Carry(c.oldOutside()[:2])
	return append(carriers,
		hostfiles.NewFile(shadowPath, 0o640, []byte(shadowBefore)),
		hostfiles.NewFile(projectUnit, 0o644, nil),
		hostfiles.NewLink("/etc/systemd/system/sysinit.target.wants/pivot-project.service", projectUnit)), err
}

// project does what the unit does early in each boot. A note in its output is an error.
func (m *Machine) project() error {
	if !m.change.outside {
		return nil
	}
	parts := m.parts()
	var noted error
	_, err := parts.Project(func(text string) { noted = fmt.Errorf("nobody has changed anything, and yet: %s", text) })
	return errors.Join(err, noted)
}

// settle runs the projection again if it was killed. The error of a refused change asks for this.
func (m *Machine) settle() error {
	if settled, err := projection.Settled(m.root); err != nil || settled || day2.LiveInterrupted(m.root) {
		return err
	}
	return m.project()
}

// wholeOutside returns an error unless exactly the entries of one MachineConfig exist outside of
// /etc.
func (m *Machine) wholeOutside(isNew bool) error {
	want, never := m.change.oldOutside(), m.change.newOutside()
	if isNew {
		want, never = never, want
	}
	known := map[string]bool{}
	for _, f := range want {
		known[f.Path] = true
		got, _, err := hostfiles.Read(m.root, f.Path)
		if err != nil || got.Entry != f.Entry {
			return fmt.Errorf("a mixture: with the new configuration: %v, %s is a %s %q (%v)", isNew, f.Path, got.Entry, got.Content, err)
		}
	}
	for _, f := range never {
		if _, err := os.Lstat(filepath.Join(m.root, f.Path)); err == nil && !known[f.Path] {
			return fmt.Errorf("a mixture: with the new configuration: %v, there is %s", isNew, f.Path)
		}
	}
	return nil
}
