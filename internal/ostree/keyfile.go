// Package keyfile reads ostree's key files: a repository's config, the origin of a
// deployment, prepare-root.conf. ostree reads them with GLib (GKeyFile), so GLib's rules
// apply: groups with the same name are merged, and if a key occurs twice, the last value
// counts.
//
// There is one difference: spaces at the end of a value are removed, since ostree's own
// code strips or rejects them.
package ostree

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// KeyFile is a key file: groups of settings, in the order in which they first occur.
type KeyFile struct{ groups []KeyGroup }

// KeyGroup is a group of settings with unique keys.
type KeyGroup struct {
	Name     string
	Settings []KeySetting
}

// KeySetting is a key and its value as written in the file. Escapes are not interpreted.
type KeySetting struct{ Key, Value string }

// NewKeyFile returns a file with the given groups.
func NewKeyFile(groups ...KeyGroup) KeyFile { return KeyFile{groups} }

// ParseKeyFile parses a key file. If GLib does not accept a line, the whole file is an error, as it is
// for ostree.
func ParseKeyFile(text []byte) (KeyFile, error) {
	var f KeyFile
	if !utf8.Valid(text) {
		return f, errors.New("cannot parse key file: it is not UTF-8")
	}
	var group *KeyGroup
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if name, ok := strings.CutPrefix(line, "["); ok {
			name, ok = strings.CutSuffix(name, "]")
			if !ok || name == "" || strings.ContainsAny(name, "[]") {
				return KeyFile{}, fmt.Errorf("cannot parse key file: %q is no group", line)
			}
			group = f.group(name)
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if key = strings.TrimSpace(key); !ok || key == "" || group == nil {
			return KeyFile{}, fmt.Errorf("cannot parse key file: %q is no setting of a group", line)
		}
		group.set(key, strings.TrimSpace(value))
	}
	return f, nil
}

// group returns the group with a name and adds it if it is missing.
func (f *KeyFile) group(name string) *KeyGroup {
	i := f.index(name)
	if i < 0 {
		i = len(f.groups)
		f.groups = append(f.groups, KeyGroup{Name: name})
	}
	return &f.groups[i]
}

func (f KeyFile) index(name string) int {
	return slices.IndexFunc(f.groups, func(g KeyGroup) bool { return g.Name == name })
}

func (g *KeyGroup) set(key, value string) {
	if i := g.index(key); i >= 0 {
		g.Settings[i].Value = value
		return
	}
	g.Settings = append(g.Settings, KeySetting{key, value})
}

func (g KeyGroup) index(key string) int {
	return slices.IndexFunc(g.Settings, func(s KeySetting) bool { return s.Key == key })
}

// Groups returns all groups.
func (f KeyFile) Groups() []KeyGroup { return f.groups }

// Value returns the value of a key in a group, and whether it exists.
func (f KeyFile) Value(group, key string) (value string, found bool) {
	if i := f.index(group); i >= 0 {
		if k := f.groups[i].index(key); k >= 0 {
			return f.groups[i].Settings[k].Value, true
		}
	}
	return "", false
}

// Bytes returns the text of the file, without comments.
func (f KeyFile) Bytes() []byte {
	var b strings.Builder
	for _, g := range f.groups {
		fmt.Fprintf(&b, "[%s]\n", g.Name)
		for _, s := range g.Settings {
			fmt.Fprintf(&b, "%s=%s\n", s.Key, s.Value)
		}
	}
	return []byte(b.String())
}
