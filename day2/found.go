package day2

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

// FoundDir is the directory of the saved sets.
const FoundDir = "/var/lib/pivot/found"

// FoundManifestName is the name of the manifest in each set.
const FoundManifestName = "manifest.json"

// Limits on what is kept. The oldest sets are removed first.
const (
	maxFoundSets    = 16
	maxFoundBytes   = 64 << 20 // of contents, over all sets
	maxFoundEntries = 10_000   // of one set
)

// foundFormat is the format version of the manifests that this program writes.
const foundFormat = 1

// FoundThing is what was found at a path. File is nil if nothing was there.
type FoundThing struct {
	Path string
	File *hostfiles.File
	// Stays means that the repair moves it aside if it cannot be put back. So a file that is too
	// large to be read is not lost: only its attributes are kept.
	Stays bool
	// OfUsers means that users may write its directory. They must not be able to stop a repair, so
	// a content beyond the limit is not kept, as one that is too large to be read.
	OfUsers bool
}

// FoundThings collects what is to be kept, within the limits. Use NewFoundThings: the zero value is not
// usable.
type FoundThings struct {
	all     []FoundThing
	bytes   *guard.Budget
	entries *guard.Budget
}

// NewFoundThings returns an empty collection.
func NewFoundThings() *FoundThings {
	return &FoundThings{bytes: guard.NewBudget(maxFoundBytes, "bytes of files"), entries: guard.NewBudget(maxFoundEntries, "entries")}
}

// Len returns the number of things.
func (t *FoundThings) Len() int { return len(t.all) }

// Add adds a thing. If it is the one beyond the limits, or has a content that cannot be kept and
// would be lost, the error has kind fault.BadInput.
func (t *FoundThings) Add(found FoundThing) error {
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

// foundManifest is the content of a manifest file.
type foundManifest struct {
	Format  int          `json:"format"`
	Time    time.Time    `json:"time"`
	Entries []foundEntry `json:"entries"` // sorted by path
}

// foundEntry describes a FoundThing in a manifest.
type foundEntry struct {
	hostfiles.Entry
	Missing bool `json:"missing,omitempty"` // nothing was there
}

// FoundKeeper saves local changes on one machine before a repair overwrites them, so that the administrator can get
// them back. Each repair has its own directory, readable by root only, with a manifest and the contents of files, named by
// their SHA-256.
type FoundKeeper struct {
	Root string
	Disk hostfiles.Disk
	Now  func() time.Time
}

// Keep saves a set of things durably and atomically, and returns its directory. If the newest
// set is equal, Keep returns that one, so that retries do not fill the disk.
func (k FoundKeeper) Keep(things *FoundThings) (dir string, err error) {
	set := foundManifest{Format: foundFormat, Time: k.Now().UTC().Truncate(time.Second)}
	contents := map[string][]byte{}
	all := slices.Clone(things.all)
	sort.Slice(all, func(i, j int) bool { return all[i].Path < all[j].Path })
	for _, t := range all {
		kept := foundEntry{Entry: hostfiles.Entry{Path: t.Path}, Missing: t.File == nil}
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
		var before foundManifest
		err := k.manifest(last).Decode(&before)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // an incomplete set has none
			return "", fmt.Errorf("cannot keep what was found: %w", err)
		}
		if err == nil && slices.Equal(before.Entries, set.Entries) {
			if err := k.Disk.Sync(k.path()); err != nil { // a killed run may have renamed it without this
				return "", fault.New(fault.CannotWrite, "cannot back up what the repair would replace: %w", err)
			}
			return filepath.Join(FoundDir, last), nil
		}
	}
	name := unusedName(set.Time.Format("20060102T150405Z"), sets)
	if err = k.write(name, set, contents); err == nil {
		err = k.prune(append(sets, name))
	}
	if err != nil {
		return "", fault.New(fault.CannotWrite, "cannot back up what the repair would replace: %w", err)
	}
	return filepath.Join(FoundDir, name), nil
}

// unusedName returns a name that does not exist yet and sorts after all existing names.
func unusedName(name string, sets []string) string {
	for n, first := 2, name; slices.Contains(sets, name); n++ {
		name = fmt.Sprintf("%s-%02d", first, n)
	}
	return name
}

func (k FoundKeeper) path(parts ...string) string {
	return filepath.Join(append([]string{k.Root, FoundDir}, parts...)...)
}

// sets returns the names of the saved sets, oldest first.
func (k FoundKeeper) sets() (names []string, err error) {
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
func (k FoundKeeper) manifest(set string) hostfiles.StateFile {
	return hostfiles.StateFile{Root: k.Root, Path: filepath.Join(FoundDir, set, FoundManifestName), Format: foundFormat,
		Remedy: "move the directory away: it is a copy of what an earlier repair replaced"}
}

// unfinishedSet is the name of a set while it is written. A crash can leave it behind.
const unfinishedSet = ".new"

func (k FoundKeeper) write(name string, set foundManifest, contents map[string][]byte) error {
	text, err := k.manifest(name).Encode(set)
	if err != nil {
		return err
	}
	contents[FoundManifestName] = text
	err = hostfiles.MakeSecretDir(k.Disk, k.path())
	if err == nil {
		err = k.remove(unfinishedSet)
	}
	if err == nil {
		err = k.Disk.Mkdir(k.path(unfinishedSet), 0o700)
	}
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		if err == nil {
			err = k.Disk.Write(k.path(unfinishedSet, name), contents[name], 0o600)
		}
		if err == nil {
			err = k.Disk.Sync(k.path(unfinishedSet, name))
		}
	}
	if err == nil {
		err = k.Disk.Sync(k.path(unfinishedSet))
	}
	if err != nil {
		return err
	}
	return hostfiles.Rename(k.Disk, k.path(unfinishedSet), k.path(name))
}

// remove removes a set, the manifest first: a set without a manifest is incomplete.
func (k FoundKeeper) remove(name string) error {
	files, err := os.ReadDir(k.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	names := []string{FoundManifestName}
	for _, f := range files {
		if f.Name() != FoundManifestName {
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
func (k FoundKeeper) prune(sets []string) error {
	left, size := 0, int64(0)
	for _, name := range slices.Backward(sets) {
		bytes, err := k.size(name)
		if err != nil {
			return err
		}
		left, size = left+1, size+bytes
		if left <= maxFoundSets && size <= maxFoundBytes || left == 1 {
			continue
		}
		if err := k.remove(name); err != nil {
			return err
		}
	}
	return nil
}

// size returns the size of a set's contents in bytes.
func (k FoundKeeper) size(name string) (bytes int64, err error) {
	files, err := os.ReadDir(k.path(name))
	for _, f := range files {
		info, ierr := f.Info()
		if ierr != nil {
			return 0, ierr
		}
		if f.Name() != FoundManifestName {
			bytes += info.Size()
		}
	}
	return bytes, err
}
