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

// BootEntry is a boot entry on a disk (Boot Loader Specification, type 1).
type BootEntry struct {
	File, Title   string
	Version       int // the highest is the default
	Options       string
	linux, initrd string
}

// BootEntries reads a powered-off machine's boot entries, the default first.
func (m *Machine) BootEntries(ctx context.Context) ([]BootEntry, error) {
	c, err := m.contents(ctx)
	if err != nil {
		return nil, err
	}
	return c.bootEntries(ctx)
}

func (c contents) bootEntries(ctx context.Context) ([]BootEntry, error) {
	const dir = "/boot/loader/entries"
	names, err := c.list(ctx, dir)
	if err != nil {
		return nil, err
	}
	var entries []BootEntry
	for _, name := range names {
		if filepath.Ext(name) != ".conf" {
			continue
		}
		text, err := c.read(ctx, dir+"/"+name)
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

// load copies the entry's kernel and initramfs into dir.
func (c contents) load(ctx context.Context, e BootEntry, dir string) (kernel, initramfs string, err error) {
	kernel, initramfs = filepath.Join(dir, "linux"), filepath.Join(dir, "initrd")
	for to, from := range map[string]string{kernel: e.linux, initramfs: e.initrd} {
		content, err := c.readBoot(ctx, from)
		if err != nil {
			return "", "", err
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			return "", "", fmt.Errorf("cannot boot: %w", err)
		}
	}
	return kernel, initramfs, nil
}

// readBoot reads a file that a boot entry names: by its path within the file
// system that holds /boot.
func (c contents) readBoot(ctx context.Context, path string) ([]byte, error) {
	if c.boot != nil || !strings.HasPrefix(path, "/boot/") {
		path = "/boot" + path
	}
	content, err := c.read(ctx, path)
	if err == nil && len(content) == 0 {
		err = fmt.Errorf("%s, which a boot entry names, is empty", path)
	}
	return content, err
}
