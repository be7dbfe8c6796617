package vm

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// BootEntry is a boot entry on a disk (Boot Loader Specification, type 1).
type BootEntry struct {
	File, Title   string
	Version       int // the highest is the default
	Options       string
	linux, initrd string
}

// BootEntries reads a powered-off machine's boot entries, the default first.
func (m *Machine) BootEntries(ctx context.Context) ([]BootEntry, error) {
	if err := m.replayJournal(ctx); err != nil {
		return nil, err
	}
	const dir = "/boot/loader/entries"
	names, err := m.list(ctx, dir)
	if err != nil {
		return nil, err
	}
	var entries []BootEntry
	for _, name := range names {
		if filepath.Ext(name) != ".conf" {
			continue
		}
		text, err := m.debugfs(ctx, "cat "+quote(dir+"/"+name))
		if err != nil {
			return nil, err
		}
		e, err := parseEntry(name, string(text))
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("cannot boot %s: it has no boot entry", m.Disk)
	}
	slices.SortStableFunc(entries, func(x, y BootEntry) int { return cmp.Compare(y.Version, x.Version) })
	return entries, nil
}

func parseEntry(file, text string) (BootEntry, error) {
	e := BootEntry{File: file}
	var err error
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		value = strings.TrimSpace(value)
		switch key {
		case "title":
			e.Title = value
		case "version":
			e.Version, err = strconv.Atoi(value)
		case "options":
			e.Options = value
		case "linux":
			e.linux = value
		case "initrd":
			e.initrd = value
		}
	}
	switch {
	case err != nil:
		return e, fmt.Errorf("cannot read boot entry %s: version: %w", file, err)
	case e.linux == "" || e.initrd == "":
		return e, fmt.Errorf("cannot read boot entry %s: it names no kernel or no initramfs", file)
	}
	return e, nil
}

// load copies the entry's kernel and initramfs into dir.
func (m *Machine) load(ctx context.Context, e BootEntry, dir string) (kernel, initramfs string, err error) {
	kernel, initramfs = filepath.Join(dir, "linux"), filepath.Join(dir, "initrd")
	if err := m.dump(ctx, e.linux, kernel); err != nil {
		return "", "", err
	}
	return kernel, initramfs, m.dump(ctx, e.initrd, initramfs)
}

// bootPath is where a file that a boot entry names is on the disk: entries name
// paths within the file system that holds /boot, here the root's.
func bootPath(path string) string {
	if strings.HasPrefix(path, "/boot/") {
		return path
	}
	return "/boot" + path
}

// dump copies a file that a boot entry names.
func (m *Machine) dump(ctx context.Context, path, to string) error {
	path = bootPath(path)
	if _, err := m.debugfs(ctx, "dump "+quote(path)+" "+quote(to)); err != nil {
		return err
	}
	if info, err := os.Stat(to); err != nil || info.Size() == 0 {
		return fmt.Errorf("cannot boot %s: its %s is missing or empty", m.Disk, path)
	}
	return nil
}
