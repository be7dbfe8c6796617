package ignition

import (
	"slices"

	v3 "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Empty is the config that says nothing.
func Empty() Config { return Config{Ignition: types.Ignition{Version: Version}} }

// Merge merges configs in order, a later one over an earlier one, by the rules
// of Ignition: what a later one does not say stays as it was. It differs in one
// point: contents that a later config gives a file replace the earlier ones as a
// whole, so that an earlier hash or compression is not held against them.
//
// Ignition's own merge copies both configs, which for many small ones takes
// quadratic time. Here files, directories, links and units, of which there can be
// thousands, are only passed to it where a path or name is there already.
func Merge(configs ...Config) Config {
	m := merger{rest: Empty(), at: map[string]position{}}
	for _, config := range configs {
		m.add(config)
	}
	return m.result()
}

// merger is a config that others are merged into.
type merger struct {
	rest        Config // all but the lists below
	directories []*types.Directory
	files       []*types.File
	links       []*types.Link
	units       []*types.Unit
	at          map[string]position
}

// position is where the entry of a path or name is. An entry that another kind has
// replaced leaves nil in its list.
type position struct {
	kind  kind
	index int
}

type kind int

const (
	kindDirectory kind = iota
	kindFile
	kindLink
	kindUnit
)

// nodeKey and unitKey keep paths and names apart.
func nodeKey(path string) string { return "node " + path }
func unitKey(name string) string { return "unit " + name }

// add merges a later config.
func (m *merger) add(child Config) {
	parent := m.rest
	for _, d := range child.Storage.Directories {
		m.take(nodeKey(d.Path), &parent)
	}
	for _, f := range child.Storage.Files {
		m.take(nodeKey(f.Path), &parent)
	}
	for _, l := range child.Storage.Links {
		m.take(nodeKey(l.Path), &parent)
	}
	for _, u := range child.Systemd.Units {
		m.take(unitKey(u.Name), &parent)
	}
	dropContents(&parent, child)
	m.put(v3.Merge(parent, child))
}

// take copies the entry of a key, if there is one, into the config to be merged
// with, and leaves its place empty.
func (m *merger) take(key string, into *Config) {
	p, ok := m.at[key]
	if !ok {
		return
	}
	switch p.kind {
	case kindDirectory:
		if d := m.directories[p.index]; d != nil {
			into.Storage.Directories = append(into.Storage.Directories, *d)
			m.directories[p.index] = nil
		}
	case kindFile:
		if f := m.files[p.index]; f != nil {
			into.Storage.Files = append(into.Storage.Files, *f)
			m.files[p.index] = nil
		}
	case kindLink:
		if l := m.links[p.index]; l != nil {
			into.Storage.Links = append(into.Storage.Links, *l)
			m.links[p.index] = nil
		}
	case kindUnit:
		if u := m.units[p.index]; u != nil {
			into.Systemd.Units = append(into.Systemd.Units, *u)
			m.units[p.index] = nil
		}
	}
}

// dropContents removes the contents of the parent's files that the child gives new ones.
func dropContents(parent *Config, child Config) {
	replaced := map[string]bool{}
	for _, f := range child.Storage.Files {
		replaced[f.Path] = f.Contents.Source != nil
	}
	for i, f := range parent.Storage.Files {
		if replaced[f.Path] {
			parent.Storage.Files[i].Contents = types.Resource{}
		}
	}
}

// put takes a merged config apart: each entry to the place of its key, new ones
// behind the others.
func (m *merger) put(merged Config) {
	for i := range merged.Storage.Directories {
		d := &merged.Storage.Directories[i]
		m.directories = placed(m, nodeKey(d.Path), kindDirectory, m.directories, d)
	}
	for i := range merged.Storage.Files {
		f := &merged.Storage.Files[i]
		m.files = placed(m, nodeKey(f.Path), kindFile, m.files, f)
	}
	for i := range merged.Storage.Links {
		l := &merged.Storage.Links[i]
		m.links = placed(m, nodeKey(l.Path), kindLink, m.links, l)
	}
	for i := range merged.Systemd.Units {
		u := &merged.Systemd.Units[i]
		m.units = placed(m, unitKey(u.Name), kindUnit, m.units, u)
	}
	m.rest = merged
	m.rest.Storage.Directories, m.rest.Storage.Files, m.rest.Storage.Links = nil, nil, nil
	m.rest.Systemd.Units = nil
}

// placed is a list with an entry in the place of its key.
func placed[T any](m *merger, key string, k kind, list []*T, entry *T) []*T {
	if p, ok := m.at[key]; ok && p.kind == k {
		list[p.index] = entry
		return list
	}
	m.at[key] = position{k, len(list)}
	return append(list, entry)
}

// result is the whole config.
func (m *merger) result() Config {
	config := m.rest
	config.Storage.Directories = present(m.directories)
	config.Storage.Files = present(m.files)
	config.Storage.Links = present(m.links)
	config.Systemd.Units = present(m.units)
	return config
}

// present are the entries that are there.
func present[T any](list []*T) []T {
	list = slices.DeleteFunc(list, func(entry *T) bool { return entry == nil })
	if len(list) == 0 {
		return nil
	}
	values := make([]T, len(list))
	for i, entry := range list {
		values[i] = *entry
	}
	return values
}
