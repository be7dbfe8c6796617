package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// BootEntry is a type 1 entry of the Boot Loader Specification (BLS entry) on a disk.
type BootEntry struct {
	File, Title   string
	Version       int // the highest is the default
	Options       string
	linux, initrd string
}

// BootEntries returns the boot entries of a powered-off machine, the default first.
func (m *Machine) BootEntries(ctx context.Context) ([]BootEntry, error) {
	return withContents(ctx, m, (*Contents).bootEntries)
}

func (c *Contents) bootEntries() ([]BootEntry, error) {
	const dir = "/boot/loader/entries"
	names, err := c.list(dir)
	if err != nil {
		return nil, err
	}
	var entries []BootEntry
	for _, name := range names {
		if filepath.Ext(name) != ".conf" {
			continue
		}
		text, err := c.ReadFile(dir + "/" + name)
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
		return nil, errors.New("there is no boot entry")
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

// loaded is a boot entry with the files that hold copies of its kernel and its initramfs.
type loaded struct {
	entry             BootEntry
	kernel, initramfs string
}

// entry returns the boot entry with the given index.
func (c *Contents) entry(number int) (BootEntry, error) {
	entries, err := c.bootEntries()
	if err != nil {
		return BootEntry{}, fmt.Errorf("cannot boot %s: %w", c.disk, err)
	}
	if number >= len(entries) {
		return BootEntry{}, fmt.Errorf("cannot boot %s: it has %d boot entries, and not one more for number %d", c.disk, len(entries), number)
	}
	return entries[number], nil
}

// load copies the kernel and the initramfs of the boot entry with the given index into dir.
func (c *Contents) load(number int, dir string) (loaded, error) {
	entry, err := c.entry(number)
	if err != nil {
		return loaded{}, err
	}
	k := loaded{entry, filepath.Join(dir, "linux"), filepath.Join(dir, "initrd")}
	for to, from := range map[string]string{k.kernel: k.entry.linux, k.initramfs: k.entry.initrd} {
		content, err := c.readBoot(from)
		if err != nil {
			return k, err
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			return k, fmt.Errorf("cannot boot: %w", err)
		}
	}
	return k, nil
}

// readBoot reads a file by the path that a boot entry gives, which is relative to the file system
// that holds /boot. An empty file is an error.
func (c *Contents) readBoot(path string) ([]byte, error) {
	if len(c.parts) > 1 || !strings.HasPrefix(path, "/boot/") {
		path = "/boot" + path
	}
	content, err := c.ReadFile(path)
	if err == nil && len(content) == 0 {
		err = fmt.Errorf("%s, which a boot entry names, is empty", path)
	}
	return content, err
}
