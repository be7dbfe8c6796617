package projection

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sort"

	"machine-pivot/internal/hostfiles"
)

// What a deployment carries is in Dir of its /etc, and treated like all of that /etc. It is committed by the same
// rename, and booted and rolled back with the deployment. A manifest names the entries. Their contents are beside it,
// each in a file named by its digest. Only root can read any of this.
const (
	Dir          = "/etc/pivot/var"
	ManifestPath = Dir + "/manifest.json"
)

// manifestFormat is the format of a manifest that this program writes and reads.
const manifestFormat = 1

// Set is what a system carries, in the form of a manifest.
type Set struct {
	Format int `json:"format"`
	// ID differs for each committed set, even if the entries are the same: it is the digest of
	// the previous set's ID and of the entries. It is "" if a system carries nothing.
	ID hostfiles.Digest `json:"id"`
	// Entries are sorted by path. Owners by name are looked up when the system runs.
	Entries []hostfiles.Entry `json:"entries"`
}

// Read reads what the system with the given root directory carries.
func Read(root string) (s Set, err error) {
	file := manifest(root)
	err = file.Decode(&s)
	if errors.Is(err, fs.ErrNotExist) {
		return Set{}, nil
	}
	for _, e := range s.Entries {
		if name, wrong := Canonical(e.Path); err == nil && (wrong != nil || name != e.Path || !Outside(name)) {
			err = file.Unusable(fmt.Errorf("%q is not a path that it can have", e.Path))
		}
	}
	return s, err
}

func manifest(root string) hostfiles.StateFile {
	return hostfiles.StateFile{Root: root, Path: ManifestPath, Format: manifestFormat,
		Remedy: "go back to the system before (pivot rollback), or move the file away and apply the MachineConfig again"}
}

// Has reports whether the set has an entry at a path.
func (s Set) Has(name string) bool {
	return slices.ContainsFunc(s.Entries, func(e hostfiles.Entry) bool { return e.Path == name })
}

// Contents returns the store of the contents that a system carries.
func Contents(root string, disk hostfiles.Disk) hostfiles.Contents {
	return hostfiles.Contents{Dir: filepath.Join(root, Dir), Disk: disk}
}

// ContentPath returns the path of the content with digest d.
func ContentPath(d hostfiles.Digest) string { return filepath.Join(Dir, d.Hex()) }

// With returns the entries of the set with the given ones added or replaced, sorted by path. An
// entry of kind Default removes the set's one. Entries below /etc are ignored.
func (s Set) With(entries []hostfiles.File) []hostfiles.Entry {
	named := hostfiles.Paths(entries)
	var set []hostfiles.Entry
	for _, f := range entries {
		if Outside(f.Path) && f.Kind != hostfiles.KindDefault {
			set = append(set, f.Entry)
		}
	}
	for _, e := range s.Entries {
		if !named[e.Path] {
			set = append(set, e)
		}
	}
	sort.Slice(set, func(i, j int) bool { return set[i].Path < set[j].Path })
	return set
}

// Carry returns entries for a deployment's /etc by which it carries those of entries that are
// outside of /etc. s is what the previous deployment carries; its entries stay unless entries
// names them, and their contents are there already. The order of the result ensures that the
// manifest never names a missing content.
func (s Set) Carry(entries []hostfiles.File) ([]hostfiles.File, error) {
	rest := slices.DeleteFunc(slices.Clone(entries), func(f hostfiles.File) bool { return Outside(f.Path) })
	if len(rest) == len(entries) { // none is outside of /etc
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

// Dropped returns the entries by which a system does not carry the set any more.
func (s Set) Dropped() (gone []hostfiles.File) {
	if len(s.Entries) == 0 {
		return nil
	}
	gone = append(gone, hostfiles.Default(ManifestPath))
	for _, d := range slices.Sorted(maps.Keys(digests(s.Entries))) {
		gone = append(gone, hostfiles.Default(ContentPath(d)))
	}
	return gone
}

// next returns the entry for the manifest of the next set, which is removed if the set is empty.
func (s Set) next(entries []hostfiles.Entry) (hostfiles.File, error) {
	if len(entries) == 0 {
		return hostfiles.Default(ManifestPath), nil
	}
	names, err := json.Marshal(entries)
	if err != nil {
		return hostfiles.File{}, fmt.Errorf("cannot carry entries: %w", err)
	}
	id := hostfiles.DigestOf(append([]byte(s.ID+"\n"), names...))
	text, err := manifest("").Encode(Set{manifestFormat, id, entries})
	return hostfiles.NewFile(ManifestPath, 0o600, text), err
}

// digests returns the digests of the entries' contents.
func digests(entries []hostfiles.Entry) map[hostfiles.Digest]bool {
	all := map[hostfiles.Digest]bool{}
	for _, e := range entries {
		if e.Kind == hostfiles.KindFile {
			all[e.Digest] = true
		}
	}
	return all
}
