package varentries

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/hostfiles"
)

// What a deployment carries is in Dir of its own /etc, of which it is a part like any other
// file: committed in the same rename, and back with the deployment that it is of. A
// manifest names the entries; contents are beside it, each in a file that is named by its
// digest. Only root can read any of it.
const (
	Dir          = "/etc/pivot/var"
	ManifestPath = Dir + "/manifest.json"
)

// manifestFormat is the format of a manifest that this program writes and reads.
const manifestFormat = 1

// Set is what a system carries, in the form of a manifest.
type Set struct {
	Format int `json:"format"`
	// ID is another one for each set that was committed, though its entries be the same: the
	// digest of the ID of the set before it and of its entries. "" of a system that carries
	// nothing.
	ID hostfiles.Digest `json:"id"`
	// Entries are in the order of their paths. Owners by name are those of the system that
	// carries them, when it runs.
	Entries []hostfiles.Entry `json:"entries"`
}

// Read reads what a system carries, by the directory that is its root.
func Read(root string) (Set, error) {
	data, err := os.ReadFile(filepath.Join(root, ManifestPath))
	if errors.Is(err, fs.ErrNotExist) {
		return Set{}, nil
	}
	if err != nil {
		return Set{}, fmt.Errorf("cannot read what this system carries: %w", err)
	}
	return parse(data)
}

func parse(data []byte) (s Set, err error) {
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("cannot use %s: %w", ManifestPath, err)
	}
	if s.Format != manifestFormat {
		return s, fmt.Errorf("cannot use %s: its format is %d, this program knows %d", ManifestPath, s.Format, manifestFormat)
	}
	for _, e := range s.Entries {
		if name, err := Canonical(e.Path); err != nil || name != e.Path || !Outside(name) {
			return s, fmt.Errorf("cannot use %s: %q is not a path that it can have", ManifestPath, e.Path)
		}
	}
	return s, nil
}

// Has reports whether the set has an entry at a path.
func (s Set) Has(name string) bool {
	return slices.ContainsFunc(s.Entries, func(e hostfiles.Entry) bool { return e.Path == name })
}

// Contents are those of the files that a system carries.
func Contents(root string, disk hostfiles.Disk) hostfiles.Contents {
	return hostfiles.Contents{Dir: filepath.Join(root, Dir), Disk: disk}
}

// ContentPath is the path of a content.
func ContentPath(d hostfiles.Digest) string {
	return filepath.Join(Dir, strings.TrimPrefix(string(d), "sha256:"))
}

// With are the entries of a set in which these are, in the order of their paths: an entry of
// kind Default takes one away. Those below /etc do not count.
func (s Set) With(entries []hostfiles.File) []hostfiles.Entry {
	named := map[string]bool{}
	var set []hostfiles.Entry
	for _, f := range entries {
		named[f.Path] = true
		if Outside(f.Path) && f.Kind != hostfiles.KindDefault {
			set = append(set, f.Entry)
		}
	}
	for _, e := range s.Entries {
		if !named[e.Path] {
			set = append(set, e)
		}
	}
	slices.SortFunc(set, func(a, b hostfiles.Entry) int { return strings.Compare(a.Path, b.Path) })
	return set
}

// Carry makes of entries those that a deployment has below its own /etc, so that it
// carries those outside of it, and of what the deployment before it carries, the set, what
// entries do not name. Contents of these are there already. The entries come in an order in
// which the manifest never names a content that is not there.
func (s Set) Carry(entries []hostfiles.File) ([]hostfiles.File, error) {
	rest := slices.DeleteFunc(slices.Clone(entries), func(f hostfiles.File) bool { return Outside(f.Path) })
	if len(rest) == len(entries) { // nothing is said of any
		return entries, nil
	}
	set, written := s.With(entries), map[hostfiles.Digest]bool{}
	rest = append(rest, hostfiles.NewDirectory(Dir, 0o700))
	for _, f := range entries {
		if Outside(f.Path) && f.Kind == hostfiles.KindFile && !written[f.Digest] {
			written[f.Digest] = true
			rest = append(rest, hostfiles.NewFile(ContentPath(f.Digest), 0o600, f.Content))
		}
	}
	manifest, err := s.next(set)
	if err != nil {
		return nil, err
	}
	rest = append(rest, manifest)
	gone, needed := digests(s.Entries), digests(set)
	for _, d := range slices.Sorted(maps.Keys(gone)) {
		if !needed[d] {
			rest = append(rest, hostfiles.Default(ContentPath(d)))
		}
	}
	return rest, nil
}

// next is the manifest of the set that follows; if it has no entries, that there is none.
func (s Set) next(entries []hostfiles.Entry) (hostfiles.File, error) {
	if len(entries) == 0 {
		return hostfiles.Default(ManifestPath), nil
	}
	names, err := json.Marshal(entries)
	if err != nil {
		return hostfiles.File{}, fmt.Errorf("cannot carry entries: %w", err)
	}
	id := hostfiles.DigestOf(append([]byte(s.ID+"\n"), names...))
	text, err := json.MarshalIndent(Set{manifestFormat, id, entries}, "", "  ")
	if err != nil {
		return hostfiles.File{}, fmt.Errorf("cannot carry entries: %w", err)
	}
	return hostfiles.NewFile(ManifestPath, 0o600, append(text, '\n')), nil
}

// digests are those of the contents that entries have.
func digests(entries []hostfiles.Entry) map[hostfiles.Digest]bool {
	all := map[hostfiles.Digest]bool{}
	for _, e := range entries {
		if e.Kind == hostfiles.KindFile {
			all[e.Digest] = true
		}
	}
	return all
}
