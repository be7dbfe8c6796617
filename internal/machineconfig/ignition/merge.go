package ignition

import (
	v3 "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Empty returns an empty config.
func Empty() Config { return Config{Ignition: types.Ignition{Version: Version}} }

// Merge merges configs in order by Ignition's rules: members that a later config does not set keep their values. There
// is one difference: a later config's contents of a file replace the earlier ones entirely, so that an earlier hash or
// compression does not apply to them.
//
// Ignition's merge copies both configs, which takes quadratic time for many small ones. There can be thousands of
// files, directories, links and units. Therefore only those with an existing path or name are passed to it.
func Merge(configs ...Config) Config {
	rest := Empty() // everything except the lists
	lists := []entries{
		listOf(func(c *Config) *[]types.Directory { return &c.Storage.Directories },
			func(d types.Directory) string { return nodeKey(d.Path) }),
		listOf(func(c *Config) *[]types.File { return &c.Storage.Files },
			func(f types.File) string { return nodeKey(f.Path) }),
		listOf(func(c *Config) *[]types.Link { return &c.Storage.Links },
			func(l types.Link) string { return nodeKey(l.Path) }),
		listOf(func(c *Config) *[]types.Unit { return &c.Systemd.Units },
			func(u types.Unit) string { return unitKey(u.Name) }),
	}
	for _, child := range configs {
		parent := rest
		for _, list := range lists {
			for _, key := range list.keys(&child) {
				for _, list := range lists { // the entry may have been of another kind
					list.take(key, &parent)
				}
			}
		}
		dropContents(&parent, child)
		rest = v3.Merge(parent, child)
		for _, list := range lists {
			list.put(&parent, &rest)
		}
	}
	for _, list := range lists {
		list.result(&rest)
	}
	return rest
}

// entries is one of the merged config's long lists.
type entries interface {
	keys(c *Config) []string            // of the config's entries of this kind
	take(key string, into *Config)      // moves the key's entry, if there is one, to a config
	put(parent *Config, merged *Config) // takes the merged entries out of a config
	result(c *Config)                   // sets a config's list to this one
}

// list has the entries of one kind in their order, each with its key's place. An entry that is
// taken to be merged leaves nil in its place.
type list[T any] struct {
	in  func(*Config) *[]T
	key func(T) string
	all []*T
	at  map[string]int
}

func listOf[T any](in func(*Config) *[]T, key func(T) string) *list[T] {
	return &list[T]{in: in, key: key, at: map[string]int{}}
}

// nodeKey and unitKey return keys that keep paths and unit names apart.
func nodeKey(path string) string { return "node " + path }
func unitKey(name string) string { return "unit " + name }

func (l *list[T]) keys(c *Config) []string {
	keys := make([]string, 0, len(*l.in(c)))
	for _, entry := range *l.in(c) {
		keys = append(keys, l.key(entry))
	}
	return keys
}

func (l *list[T]) take(key string, into *Config) {
	if i, ok := l.at[key]; ok && l.all[i] != nil {
		*l.in(into) = append(*l.in(into), *l.all[i])
		l.all[i] = nil
	}
}

// put stores each merged entry in the place of its key, new ones at the end. A parent's entry
// that one of another kind has replaced loses its place.
func (l *list[T]) put(parent, merged *Config) {
	for i, key := range l.keys(merged) {
		at, ok := l.at[key]
		if !ok {
			at = len(l.all)
			l.at[key], l.all = at, append(l.all, nil)
		}
		l.all[at] = &(*l.in(merged))[i]
	}
	for _, key := range l.keys(parent) {
		if l.all[l.at[key]] == nil {
			delete(l.at, key)
		}
	}
	*l.in(merged) = nil
}

func (l *list[T]) result(c *Config) {
	for _, entry := range l.all {
		if entry != nil {
			*l.in(c) = append(*l.in(c), *entry)
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
