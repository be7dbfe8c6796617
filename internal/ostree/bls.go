package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"machine-pivot/internal/fault"
)

// BootEntry is a boot entry (type 1 of the Boot Loader Specification, BLS) as ostree
// writes it.
type BootEntry struct {
	File    string // file name in loader/entries
	Title   string
	Version string // ostree's sort key, as it is written: the entry with the highest version is the default
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
	// Others are the keys that libostree does not write, such as grub_users and grub_arg, in the order of the entry. It keeps
	// them in an existing entry, and makes a new one without them.
	Others []Key
}

// Key is a line of a boot entry.
type Key struct{ Name, Value string }

// OptionsSource lists options of a boot entry that belong to a program, which replaces them later. It is a line of the
// entry with the key SourceKey and the program's name (bootc, crates/lib/src/loader_entries.rs).
type OptionsSource struct {
	Name    string `json:"name"`    // such as tuned
	Options string `json:"options"` // may be empty, and need not be in the entry's options any more
}

// SourceKey is the prefix of the keys of options that belong to a program.
const SourceKey = "x-options-source-"

// Ostree returns the value of the kernel argument ostree=, the path of the symbolic link to
// the deployment, or "". As in libostree, only spaces separate arguments.
func (e BootEntry) Ostree() string {
	for option := range strings.SplitSeq(e.Options, " ") {
		if link, ok := strings.CutPrefix(option, "ostree="); ok {
			return link
		}
	}
	return ""
}

// BootEntries reads the host's boot entries that libostree takes for those of deployments, and returns them with the
// default first. Both the set and the order are exactly libostree's, since its commands count them: regular files named
// ostree-*.conf, and links to such files. They are sorted by version as strverscmp(3) does, those without one last, and
// equal ones as the directory has them. Nothing in the directory may be a link to nowhere, whatever its name, or
// libostree fails. Source: _ostree_sysroot_read_boot_loader_configs in its ostree-sysroot.c.
func (s *Sysroot) BootEntries() ([]BootEntry, error) {
	dir := filepath.Join(s.bootDir(), "loader/entries")
	names, err := namesIn(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read boot entries: %w", err)
	}
	var entries []BootEntry
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fault.New(fault.Refused, "cannot read boot entries: %w", err).
				WithHint("remove the link, which leads nowhere and with which libostree reads none: rm %s", filepath.Join(dir, name))
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read boot entries: %w", err)
		}
		if !strings.HasPrefix(name, "ostree-") || !strings.HasSuffix(name, ".conf") || !info.Mode().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("cannot read boot entry: %w", err)
		}
		e := parseBootEntry(string(text))
		e.File = name
		entries = append(entries, e)
	}
	sort.SliceStable(entries, func(i, j int) bool { return compareVersions(entries[i].Version, entries[j].Version) > 0 })
	return entries, nil
}

// namesIn returns the names in a directory, in its own order; none if it does not exist.
func namesIn(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
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

// parseBootEntry reads an entry as libostree does (ostree-bootconfig-parser.c): a line begins with a letter, the first space
// or tab ends the key, and the last line with a key counts. Values of paths and titles are without the spaces around them.
func parseBootEntry(text string) BootEntry {
	var e BootEntry
	for line := range strings.SplitSeq(text, "\n") {
		end := strings.IndexAny(line, " \t")
		if end < 1 || !letter(line[0]) {
			continue
		}
		key, raw := line[:end], line[end+1:]
		value := strings.TrimSpace(raw)
		switch key {
		case "title":
			e.Title = value
		case "version":
			e.Version = raw
		case "options":
			e.Options = raw
		case "linux":
			e.Linux = value
		case "initrd":
			e.Initrds = append(e.Initrds, value)
		case "aboot":
			e.Aboot = value
		case "abootcfg":
		case "devicetree", "fdtdir":
			e.Board = append(e.Board, key)
		default:
			e.addForeign(Key{key, raw})
		}
	}
	return e
}

// addForeign adds a key that libostree does not write.
func (e *BootEntry) addForeign(k Key) {
	if name, ok := strings.CutPrefix(k.Name, SourceKey); ok && name != "" {
		e.Sources = append(e.Sources, OptionsSource{name, strings.TrimSpace(k.Value)})
		return
	}
	if k.Name == "devicetree-overlay" {
		e.Board = append(e.Board, k.Name)
	}
	e.Others = slices.DeleteFunc(e.Others, func(o Key) bool { return o.Name == k.Name })
	e.Others = append(e.Others, k)
}

// ForeignKeys returns the keys that libostree does not write into a new entry.
func (e BootEntry) ForeignKeys() []Key {
	keys := slices.Clone(e.Others)
	for _, s := range e.Sources {
		keys = append(keys, Key{SourceKey + s.Name, s.Options})
	}
	return keys
}

// WithoutKeys returns the text of a boot entry without the lines of keys.
func WithoutKeys(text string, keys []Key) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if others := parseBootEntry(line).Others; len(others) == 0 || !slices.Contains(keys, others[0]) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
