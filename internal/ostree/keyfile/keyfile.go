// Package keyfile reads ostree's key files: a repository's config, the origin of a
// deployment, prepare-root.conf. ostree reads them with GLib (GKeyFile), so GLib's rules
// apply: groups of the same name are one group, and of a key that occurs twice the last
// value counts.
//
// There is one difference: spaces at the end of a value are removed, since ostree's own
// code strips or refuses them.
package keyfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// File is a key file: groups of settings, in the order in which they first occur.
type File struct{ groups []Group }

// Group is a group of settings. No key is there twice.
type Group struct {
	Name     string
	Settings []Setting
}

// Setting is a key and its value as they are written; escapes are not interpreted.
type Setting struct{ Key, Value string }

// Of is a file of these groups.
func Of(groups ...Group) File { return File{groups} }

// Parse reads a key file. A line that GLib does not accept is an error for the whole file,
// as it is for ostree.
func Parse(text []byte) (File, error) {
	var f File
	if !utf8.Valid(text) {
		return f, errors.New("cannot parse key file: it is not UTF-8")
	}
	var group *Group
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if name, ok := strings.CutPrefix(line, "["); ok {
			name, ok = strings.CutSuffix(name, "]")
			if !ok || name == "" || strings.ContainsAny(name, "[]") {
				return File{}, fmt.Errorf("cannot parse key file: %q is no group", line)
			}
			group = f.group(name)
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if key = strings.TrimSpace(key); !ok || key == "" || group == nil {
			return File{}, fmt.Errorf("cannot parse key file: %q is no setting of a group", line)
		}
		group.set(key, strings.TrimSpace(value))
	}
	return f, nil
}

// group is the group with a name; it is made if it is missing.
func (f *File) group(name string) *Group {
	i := f.index(name)
	if i < 0 {
		i = len(f.groups)
		f.groups = append(f.groups, Group{Name: name})
	}
	return &f.groups[i]
}

func (f File) index(name string) int {
	return slices.IndexFunc(f.groups, func(g Group) bool { return g.Name == name })
}

func (g *Group) set(key, value string) {
	if i := g.index(key); i >= 0 {
		g.Settings[i].Value = value
		return
	}
	g.Settings = append(g.Settings, Setting{key, value})
}

func (g Group) index(key string) int {
	return slices.IndexFunc(g.Settings, func(s Setting) bool { return s.Key == key })
}

// Groups are all groups.
func (f File) Groups() []Group { return f.groups }

// Value is the value of a key in a group, and whether it is there.
func (f File) Value(group, key string) (value string, found bool) {
	if i := f.index(group); i >= 0 {
		if k := f.groups[i].index(key); k >= 0 {
			return f.groups[i].Settings[k].Value, true
		}
	}
	return "", false
}

// Bytes is the file's text, without comments.
func (f File) Bytes() []byte {
	var b strings.Builder
	for _, g := range f.groups {
		fmt.Fprintf(&b, "[%s]\n", g.Name)
		for _, s := range g.Settings {
			fmt.Fprintf(&b, "%s=%s\n", s.Key, s.Value)
		}
	}
	return []byte(b.String())
}
