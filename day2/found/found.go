// Package found saves local changes before a repair overwrites them, so that the administrator
// can get them back. Each repair has its own directory, readable by root only, with a manifest
// and the contents of files, named by their SHA-256.
package found

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
	"machine-pivot/internal/hostfiles"
)

// Dir is the directory of the saved sets.
const Dir = "/var/lib/pivot/found"

// ManifestName is the name of the manifest in each set.
const ManifestName = "manifest.json"

// Limits on what is kept. The oldest sets are removed first.
const (
	maxSets    = 16
	maxBytes   = 64 << 20 // of contents, over all sets
	maxEntries = 10_000   // of one set
)

// manifestFormat is the format version of the manifests that this program writes.
const manifestFormat = 1

// Thing is what was found at a path. File is nil if nothing was there.
type Thing struct {
	Path string
	File *hostfiles.File
	// Stays means that the repair moves it aside if it cannot be put back. So a file that is too
	// large to be read is not lost: only its attributes are kept.
	Stays bool
	// OfUsers means that users may write its directory. They must not be able to stop a repair, so
	// a content beyond the limit is not kept, as one that is too large to be read.
	OfUsers bool
}

// Things collects what is to be kept, within the limits. Use NewThings: the zero value is not
// usable.
type Things struct {
	all     []Thing
	bytes   *guard.Budget
	entries *guard.Budget
}

// NewThings returns an empty collection.
func NewThings() *Things {
	return &Things{bytes: guard.NewBudget(maxBytes, "bytes of files"), entries: guard.NewBudget(maxEntries, "entries")}
}

// Len returns the number of things.
func (t *Things) Len() int { return len(t.all) }

// Add adds a thing. If it is the one beyond the limits, or has a content that cannot be kept and
// would be lost, the error has kind fault.BadInput.
func (t *Things) Add(found Thing) error {
	err := t.entries.Take(1)
	if f := found.File; err == nil && f != nil {
		size := int64(len(f.Content))
		err = t.bytes.Take(size)
		switch {
		case err != nil && found.OfUsers:
			t.bytes.Return(size)
			without := *f
			without.Content, without.Digest = nil, hostfiles.TooLarge
			found.File, err = &without, nil
		case f.Digest == hostfiles.TooLarge && !found.Stays:
			err = errors.New("it is " + string(hostfiles.TooLarge))
		}
	}
	if err != nil {
		return fault.New(fault.BadInput, "cannot back up what the repair would replace, at %s: %w", found.Path, err).WithHint("move it elsewhere, then run pivot apply --repair again")
	}
	t.all = append(t.all, found)
	return nil
}

// manifest is the content of a manifest file.
type manifest struct {
	Format  int       `json:"format"`
	Time    time.Time `json:"time"`
	Entries []entry   `json:"entries"` // sorted by path
}

// entry describes a Thing in a manifest.
type entry struct {
	hostfiles.Entry
	Missing bool `json:"missing,omitempty"` // nothing was there
}

// Keeper saves sets on one machine.
type Keeper struct {
	Root string
	Disk hostfiles.Disk
	Now  func() time.Time
}

// Keep saves a set of things durably and atomically, and returns its directory. If the newest
// set is equal, Keep returns that one, so that retries do not fill the disk.
func (k Keeper) Keep(things *Things) (dir string, err error) {
	set := manifest{Format: manifestFormat, Time: k.Now().UTC().Truncate(time.Second)}
	contents := map[string][]byte{}
	all := slices.Clone(things.all)
	sort.Slice(all, func(i, j int) bool { return all[i].Path < all[j].Path })
	for _, t := range all {
		kept := entry{Entry: hostfiles.Entry{Path: t.Path}, Missing: t.File == nil}
		if t.File != nil {
			kept.Entry = t.File.Entry
			if t.File.Whole() && kept.Digest != "" { // otherwise nobody has read the content
				contents[kept.Digest.Hex()] = t.File.Content
			}
		}
		set.Entries = append(set.Entries, kept)
	}
	sets, err := k.sets()
	if err != nil {
		return "", err
	}
	if len(sets) > 0 {
		last := sets[len(sets)-1]
		var before manifest
		err := k.manifest(last).Decode(&before)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // an incomplete set has none
			return "", fmt.Errorf("cannot keep what was found: %w", err)
		}
		if err == nil && slices.Equal(before.Entries, set.Entries) {
			if err := k.Disk.Sync(k.path()); err != nil { // a killed run may have renamed it without this
				return "", fault.New(fault.CannotWrite, "cannot back up what the repair would replace: %w", err)
			}
			return filepath.Join(Dir, last), nil
		}
	}
	name := unused(set.Time.Format("20060102T150405Z"), sets)
	if err = k.write(name, set, contents); err == nil {
		err = k.prune(append(sets, name))
	}
	if err != nil {
		return "", fault.New(fault.CannotWrite, "cannot back up what the repair would replace: %w", err)
	}
	return filepath.Join(Dir, name), nil
}

// unused returns a name that does not exist yet and sorts after all existing names.
func unused(name string, sets []string) string {
	for n, first := 2, name; slices.Contains(sets, name); n++ {
		name = fmt.Sprintf("%s-%02d", first, n)
	}
	return name
}

func (k Keeper) path(parts ...string) string {
	return filepath.Join(append([]string{k.Root, Dir}, parts...)...)
}

// sets returns the names of the saved sets, oldest first.
func (k Keeper) sets() (names []string, err error) {
	all, err := os.ReadDir(k.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, d := range all {
		if !strings.HasPrefix(d.Name(), ".") {
			names = append(names, d.Name())
		}
	}
	return names, err
}

// manifest returns the manifest of a set.
func (k Keeper) manifest(set string) hostfiles.StateFile {
	return hostfiles.StateFile{Root: k.Root, Path: filepath.Join(Dir, set, ManifestName), Format: manifestFormat,
		Remedy: "move the directory away: it is a copy of what an earlier repair replaced"}
}

// unfinished is the name of a set while it is written. A crash can leave it behind.
const unfinished = ".new"

func (k Keeper) write(name string, set manifest, contents map[string][]byte) error {
	text, err := k.manifest(name).Encode(set)
	if err != nil {
		return err
	}
	contents[ManifestName] = text
	err = hostfiles.MakeSecretDir(k.Disk, k.path())
	if err == nil {
		err = k.remove(unfinished)
	}
	if err == nil {
		err = k.Disk.Mkdir(k.path(unfinished), 0o700)
	}
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		if err == nil {
			err = k.Disk.Write(k.path(unfinished, name), contents[name], 0o600)
		}
		if err == nil {
			err = k.Disk.Sync(k.path(unfinished, name))
		}
	}
	if err == nil {
		err = k.Disk.Sync(k.path(unfinished))
	}
	if err != nil {
		return err
	}
	return hostfiles.Rename(k.Disk, k.path(unfinished), k.path(name))
}

// remove removes a set, the manifest first: a set without a manifest is incomplete.
func (k Keeper) remove(name string) error {
	files, err := os.ReadDir(k.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	names := []string{ManifestName}
	for _, f := range files {
		if f.Name() != ManifestName {
			names = append(names, f.Name())
		}
	}
	for _, file := range names {
		if err == nil {
			err = k.Disk.Remove(k.path(name, file))
		}
		if errors.Is(err, fs.ErrNotExist) { // the manifest of an incomplete set
			err = nil
		}
	}
	if err == nil {
		err = k.Disk.Remove(k.path(name))
	}
	return err
}

// prune removes the oldest sets until the rest is within the limits. It always keeps the
// newest.
func (k Keeper) prune(sets []string) error {
	left, size := 0, int64(0)
	for _, name := range slices.Backward(sets) {
		bytes, err := k.size(name)
		if err != nil {
			return err
		}
		left, size = left+1, size+bytes
		if left <= maxSets && size <= maxBytes || left == 1 {
			continue
		}
		if err := k.remove(name); err != nil {
			return err
		}
	}
	return nil
}

// size returns the size of a set's contents in bytes.
func (k Keeper) size(name string) (bytes int64, err error) {
	files, err := os.ReadDir(k.path(name))
	for _, f := range files {
		info, ierr := f.Info()
		if ierr != nil {
			return 0, ierr
		}
		if f.Name() != ManifestName {
			bytes += info.Size()
		}
	}
	return bytes, err
}
