package projection

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/hostfiles"
)

// The record says what was projected and what that replaced, so that it can be taken back. It is
// in /var itself, because all deployments share it. Replaced contents are beside it. Only root
// can read any of this.
const (
	recordDir = "/var/lib/pivot/projection"
	// RecordPath exists as long as anything in /var is projected.
	RecordPath = recordDir + "/record.json"
)

// recordFormat is the format of a record that this program writes and reads.
const recordFormat = 1

// record is the JSON form of the record.
type record struct {
	Format int `json:"format"`
	// Set is the ID of the set that was projected last.
	Set   hostfiles.Digest `json:"set"`
	Items []item           `json:"items"` // sorted by path
}

// item is one path.
type item struct {
	Path string `json:"path"`
	// Ours are the projected entries that the path may have. There is more than one only while
	// a step is in progress or after it has failed. If the path has anything else, it was
	// changed by somebody else.
	Ours []hostfiles.Entry `json:"ours"`
	// Was is what the path had before the first projection; nil if it had nothing, or exactly
	// the projected file or link.
	Was *hostfiles.Entry `json:"was,omitempty"`
	// Begun says that a step is in progress or has failed, so that the path may have what it had
	// before or after the step.
	Begun bool `json:"begun,omitempty"`
	// Parent says that this directory was not requested, but made for an entry in it.
	Parent bool `json:"parent,omitempty"`
}

// owns reports whether have, which is at the item's path, was projected.
func (i item) owns(have hostfiles.Entry) bool {
	if slices.Contains(i.Ours, have) {
		return true
	}
	// The owner and the mode of a directory do not change atomically.
	return i.Begun && have.Kind == hostfiles.KindDirectory && slices.ContainsFunc(i.Ours, func(e hostfiles.Entry) bool { return e.Kind == have.Kind })
}

// asBefore reports whether the path has what it had before the first projection.
func (i item) asBefore(have hostfiles.Entry, there bool) bool {
	return there == (i.Was != nil) && (!there || have == *i.Was)
}

// last returns the entry that was projected last, or is being projected.
func (i item) last() hostfiles.Entry { return i.Ours[len(i.Ours)-1] }

// recordFile returns the record of the system with the given root directory.
func recordFile(root string, disk hostfiles.Disk) hostfiles.StateFile {
	return hostfiles.StateFile{Root: root, Path: RecordPath, Format: recordFormat, Disk: disk, Mode: 0o600,
		Remedy: "move the file away: then nothing in /var that is not asked for any more is removed"}
}

// load reads the record of the system with the given root directory.
func load(root string) (r record, err error) {
	file := recordFile(root, nil)
	err = file.Decode(&r)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	for _, i := range r.Items {
		if err == nil && len(i.Ours) == 0 {
			err = file.Unusable(fmt.Errorf("it does not say what was projected at %s", i.Path))
		}
	}
	return r, err
}

// item returns the item of a path, if there is one.
func (r record) item(name string) (item, bool) {
	at, found := slices.BinarySearchFunc(r.Items, name, func(i item, name string) int { return strings.Compare(i.Path, name) })
	if !found {
		return item{}, false
	}
	return r.Items[at], true
}

// replaced returns the store of the contents that were replaced.
func (p *Projector) replaced() hostfiles.Contents {
	return hostfiles.Contents{Dir: filepath.Join(p.Root, recordDir, "contents"), Disk: p.Disk}
}

// save replaces the record durably, or removes it if it has no items. The contents that it names
// must be kept already; all others are removed.
func (p *Projector) save(r record) (err error) {
	r.Format = recordFormat
	if file := recordFile(p.Root, p.Disk); len(r.Items) == 0 {
		err = file.Remove()
	} else {
		err = file.Save(r)
	}
	if err != nil {
		return err
	}
	var named []hostfiles.Digest
	for _, i := range r.Items {
		if i.Was != nil && i.Was.Kind == hostfiles.KindFile {
			named = append(named, i.Was.Digest)
		}
	}
	if err := p.replaced().Release(named); err != nil {
		return fmt.Errorf("cannot remove contents that are not needed: %w", err)
	}
	return nil
}
