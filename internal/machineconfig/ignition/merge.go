package ignition

import (
	"slices"

	v3 "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Empty returns an empty config.
func Empty() Config { return Config{Ignition: types.Ignition{Version: Version}} }

// Merge merges configs in order by Ignition's rules: members that a later config does not set
// keep their values. There is one difference: if a later config sets the contents of a file,
// they replace the earlier ones entirely, so that an earlier hash or compression does not apply
// to them.
//
// Ignition's merge copies both configs, which takes quadratic time for many small ones.
// Therefore only those files, directories, links and units (there can be thousands) are passed
// to it whose path or name already exists.
func Merge(configs ...Config) Config {
	m := merger{rest: Empty(), at: map[string]position{}}
	for _, config := range configs {
		m.add(config)
	}
	return m.result()
}

// merger accumulates the merged config.
type merger struct {
	rest        Config // everything except the lists below
	directories []*types.Directory
	files       []*types.File
	links       []*types.Link
	units       []*types.Unit
	at          map[string]position
}

// position is the place of the entry for a path or name. If an entry of another kind has
// replaced it, its list has nil there.
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

// nodeKey and unitKey return keys that keep paths and unit names apart.
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

// take moves the entry of a key, if it exists, to the config to merge into, and leaves nil in
// its place.
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

// dropContents removes the contents of those files in parent for which child sets new contents.
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

// put stores the entries of a merged config: each in the place of its key, new ones at the end.
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

// placed stores an entry in the place of its key and returns the list.
func placed[T any](m *merger, key string, k kind, list []*T, entry *T) []*T {
	if p, ok := m.at[key]; ok && p.kind == k {
		list[p.index] = entry
		return list
	}
	m.at[key] = position{k, len(list)}
	return append(list, entry)
}

// result returns the merged config.
func (m *merger) result() Config {
	config := m.rest
	config.Storage.Directories = present(m.directories)
	config.Storage.Files = present(m.files)
	config.Storage.Links = present(m.links)
	config.Systemd.Units = present(m.units)
	return config
}

// present returns the entries that are not nil.
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
