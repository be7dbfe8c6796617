package crash

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/settings"
)

// StaticGRUB is a boot loader with a static configuration that sources the administrator's custom.cfg,
// as bootupd's does. It needs the variant Tried.
func StaticGRUB(m *Machine) { m.trial.loader, m.grub = false, true }

// Guarded is a machine with a fallback of its first boot, with the boot loader of StaticGRUB. The kernel of the new
// system is dead in its first boots, and the user power-cycles the machine.
func Guarded(dead int) Variant {
	return func(m *Machine) { m.grub, m.guarded, m.deadBoots = true, true, dead }
}

// guardedEtc returns what a first boot with a fallback needs in /etc.
func guardedEtc() []hostfiles.File {
	return []hostfiles.File{hostfiles.NewFile(settings.Path, 0o644, []byte("fallback=auto\n"))}
}

// Files of this GRUB.
const (
	staticConfig = "load_env\nblscfg\nif [ -f $prefix/custom.cfg ]; then\n  source $prefix/custom.cfg\nfi\n"
	customConfig = "set timeout=7" // the administrator's, which does not end with a newline
)

func (m *Machine) grubDir() string { return filepath.Join(m.dir, "boot/grub2") }

// installGRUB writes GRUB's files.
func (m *Machine) installGRUB() error {
	err := writeAll(map[string]string{m.grubDir() + "/grub.cfg": staticConfig, m.grubDir() + "/custom.cfg": customConfig})
	return errors.Join(err, m.know(m.grubDir()))
}

// startedOnce is what GRUB does with a hook in custom.cfg. It returns the file of the boot entry that the hook's
// environment block names, if any, and clears the name on the disk.
func (m *Machine) startedOnce() (file string, err error) {
	custom, err := m.grubFile("custom.cfg")
	if err != nil {
		return "", err
	}
	loads := regexp.MustCompile(`load_env -f \$\{prefix\}/(\S+) (\S+)`).FindSubmatch(custom)
	if loads == nil {
		return "", nil
	}
	block, err := m.grubFile(string(loads[1]))
	if err != nil {
		return "", err
	}
	names := regexp.MustCompile(`(?m)^` + string(loads[2]) + `=(.+)\n`)
	name := names.FindSubmatch(block)
	if name == nil {
		return "", nil
	}
	cleared := names.ReplaceAll(block, []byte(string(loads[2])+"=\n"))
	cleared = append(cleared, bytes.Repeat([]byte("#"), len(block)-len(cleared))...)
	path := filepath.Join(m.grubDir(), string(loads[1]))
	n := m.disk.now[path]
	if n == nil || n != m.disk.durable[path] {
		return "", fmt.Errorf("GRUB writes to %s, which is not on the disk as it is", path)
	}
	n.content, n.durable = cleared, cleared
	return string(name[1]) + ".conf", n.write(path)
}

func (m *Machine) grubFile(name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(m.grubDir(), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// grubAsBefore returns an error if GRUB's directory is not as the administrator has left it.
func (m *Machine) grubAsBefore() error {
	if !m.grub {
		return nil
	}
	names, err := filepath.Glob(m.grubDir() + "/*")
	custom, rerr := m.grubFile("custom.cfg")
	if err = errors.Join(err, rerr); err != nil {
		return err
	}
	if len(names) != 2 || string(custom) != customConfig {
		return fmt.Errorf("after the trial GRUB has %d files, and custom.cfg has %q", len(names), custom)
	}
	return nil
}
