package rpmostree

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// Some kernel arguments belong to programs: keys of the boot entry say whose they are. libostree since 2026.1 carries
// the keys over to a staged deployment, but not to one that it makes at once. It keeps those of existing entries.

// entryOf returns the boot entry of a deployment.
func (e *Ostree) entryOf(d ostree.Deployment) (ostree.BootEntry, error) {
	all, err := e.Sysroot.Deployments()
	if i := indexOf(all, d); err == nil && i >= 0 {
		return all[i].Entry, nil
	}
	return ostree.BootEntry{}, err
}

// addSources adds the keys of the booted deployment's boot entry to that of another, which is not the next boot yet.
func (e *Ostree) addSources(booted, next ostree.Deployment) error {
	from, err := e.entryOf(booted)
	if err != nil {
		return err
	}
	to, err := e.entryOf(next)
	if err != nil {
		return err
	}
	dir, err := hostfiles.OpenWritable(filepath.Join(e.Sysroot.Root(), "boot"), filepath.Join(e.Sysroot.Root(), "boot/loader/entries"))
	if err != nil {
		return fmt.Errorf("cannot keep the boot entry's keys: %w", err)
	}
	defer dir.Close()
	file := filepath.Join(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), to.File)
	text, err := os.ReadFile(file)
	if err == nil {
		err = hostfiles.Replace(hostfiles.OS{}, file, []byte(withSources(string(text), from.Sources)), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the boot entry's keys: %w", err)
	}
	return nil
}

// withSources returns the text of a boot entry with more keys.
func withSources(entry string, sources []ostree.OptionsSource) string {
	entry = strings.TrimRight(entry, "\n") + "\n"
	for _, s := range sources {
		entry += ostree.SourceKey + s.Name + " " + s.Options + "\n"
	}
	return entry
}
