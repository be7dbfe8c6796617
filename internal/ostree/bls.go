package ostree

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// BootEntry is a boot entry (type 1 of the Boot Loader Specification, BLS) as ostree
// writes it.
type BootEntry struct {
	File    string // file name in loader/entries
	Title   string
	Version int // ostree's sort key: the entry with the highest version is the default
	Options string
	Linux   string
	Initrds []string
	// Board lists the device tree keys in the entry, which only some boot loaders support.
	Board []string
	// Aboot is the path of the Android boot image. libostree writes this key into every entry,
	// even if the image has no such file (ostree-sysroot-deploy.c).
	Aboot string
	// Sources are the owners of some of the options, in the order of the entry.
	Sources []OptionsSource
}

// OptionsSource lists options of a boot entry that belong to a program, which replaces them later. It is a line of
// the entry whose key is SourceKey with the program's name (bootc, crates/lib/src/loader_entries.rs).
type OptionsSource struct {
	Name    string `json:"name"`    // such as tuned
	Options string `json:"options"` // may be empty, and need not be in the entry's options any more
}

// SourceKey is the prefix of the keys of options that belong to a program.
const SourceKey = "x-options-source-"

// Ostree returns the value of the kernel argument ostree=, the path of the symbolic link to
// the deployment, or "".
func (e BootEntry) Ostree() string {
	for option := range strings.FieldsSeq(e.Options) {
		if link, ok := strings.CutPrefix(option, "ostree="); ok {
			return link
		}
	}
	return ""
}

// BootEntries reads the host's boot entries and returns them with the default first.
func (s *Sysroot) BootEntries() ([]BootEntry, error) {
	dir := s.bootDir()
	files, err := filepath.Glob(filepath.Join(dir, "loader/entries/*.conf"))
	if err != nil {
		return nil, fmt.Errorf("cannot read boot entries: %w", err)
	}
	var entries []BootEntry
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("cannot read boot entry: %w", err)
		}
		e := parseBootEntry(string(text))
		e.File = filepath.Base(file)
		entries = append(entries, e)
	}
	slices.SortStableFunc(entries, func(a, b BootEntry) int { return b.Version - a.Version })
	return entries, nil
}

// bootDir returns the directory that contains loader/entries: the host's /boot, or the boot
// directory of a sysroot that is not booted.
func (s *Sysroot) bootDir() string {
	dir := filepath.Join(s.root, "boot")
	if _, err := os.Stat(filepath.Join(dir, "loader")); err != nil && s.physical != s.root {
		return filepath.Join(s.physical, "boot")
	}
	return dir
}

// BootPath returns the path on the host of a file named in a boot entry. Paths in entries are
// relative to the file system of /boot. If /boot is on the root file system, some of them
// begin with /boot.
func (s *Sysroot) BootPath(name string) string {
	return filepath.Join(s.bootDir(), strings.TrimPrefix(name, "/boot/"))
}

func parseBootEntry(text string) BootEntry {
	var e BootEntry
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		value = strings.TrimSpace(value)
		switch key {
		case "title":
			e.Title = value
		case "version":
			// A version that is not a number counts as 0 and sorts last, as in libostree.
			e.Version, _ = strconv.Atoi(value)
		case "options":
			e.Options = value
		case "linux":
			e.Linux = value
		case "initrd":
			e.Initrds = append(e.Initrds, value)
		case "aboot":
			e.Aboot = value
		case "devicetree", "devicetree-overlay", "fdtdir":
			e.Board = append(e.Board, key)
		default:
			if name, ok := strings.CutPrefix(key, SourceKey); ok && name != "" {
				e.Sources = append(e.Sources, OptionsSource{name, value})
			}
		}
	}
	return e
}
