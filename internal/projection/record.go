package projection

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/hostfiles"
)

// The record says what was projected and what that replaced, so that it can be taken back.
// It is in /var itself: of /var there is one, whatever deployment runs. Contents that were
// replaced are beside it. Only root can read any of it.
const (
	recordDir = "/var/lib/pivot/projection"
	// RecordPath is there as long as anything in /var is projected.
	RecordPath = recordDir + "/record.json"
)

// recordFormat is the format of a record that this program writes and reads.
const recordFormat = 1

// record is the content of the record.
type record struct {
	Format int `json:"format"`
	// Set is the ID of the set that was projected last.
	Set   hostfiles.Digest `json:"set"`
	Items []item           `json:"items"` // in the order of their paths
}

// item is one path.
type item struct {
	Path string `json:"path"`
	// Ours is what may stand there of what was projected: one entry, and more only if
	// something went wrong between them. What differs from all was changed by somebody else.
	Ours []hostfiles.Entry `json:"ours"`
	// Was stood there when the first of them came; nil: nothing, or just that.
	Was *hostfiles.Entry `json:"was,omitempty"`
	// Begun says that what stands there may be of before or after a change.
	Begun bool `json:"begun,omitempty"`
	// Parent says that nobody asked for this directory: it was made for an entry in it.
	Parent bool `json:"parent,omitempty"`
}

// is reports whether what stands at the item's path is ours.
func (i item) is(have hostfiles.Entry) bool {
	if slices.Contains(i.Ours, have) {
		return true
	}
	// A directory gets its owner and its mode one after the other.
	return i.Begun && have.Kind == hostfiles.KindDirectory && slices.ContainsFunc(i.Ours, func(e hostfiles.Entry) bool { return e.Kind == have.Kind })
}

// asBefore reports whether what stands there, or nothing, is what did before the item.
func (i item) asBefore(have hostfiles.Entry, there bool) bool {
	return there == (i.Was != nil) && (!there || have == *i.Was)
}

// last is what was projected last, or was about to be.
func (i item) last() hostfiles.Entry { return i.Ours[len(i.Ours)-1] }

// load reads the record of a system by its root directory.
func load(root string) (r record, err error) {
	data, err := os.ReadFile(filepath.Join(root, RecordPath))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("cannot read what was projected: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("cannot use %s: %w", RecordPath, err)
	}
	if r.Format != recordFormat {
		return r, fmt.Errorf("cannot use %s: its format is %d, this program knows %d", RecordPath, r.Format, recordFormat)
	}
	for _, i := range r.Items {
		if len(i.Ours) == 0 {
			return r, fmt.Errorf("cannot use %s: it does not say what was projected at %s", RecordPath, i.Path)
		}
	}
	return r, nil
}

// item is that of a path.
func (r record) item(name string) (item, bool) {
	at, found := slices.BinarySearchFunc(r.Items, name, func(i item, name string) int { return strings.Compare(i.Path, name) })
	if !found {
		return item{}, false
	}
	return r.Items[at], true
}

// replaced are the contents that were replaced.
func (p *Projector) replaced() hostfiles.Contents {
	return hostfiles.Contents{Dir: filepath.Join(p.Root, recordDir, "contents"), Disk: p.Disk}
}

// makeDir makes the record's directory.
func (p *Projector) makeDir() error {
	dir := filepath.Join(p.Root, recordDir)
	err := hostfiles.MakeDir(p.Disk, filepath.Dir(dir), 0o755)
	if err == nil {
		err = hostfiles.MakeDir(p.Disk, dir, 0o700)
	}
	return err
}

// save replaces the record durably: without items there is none. Contents that it names
// are kept already; the others go.
func (p *Projector) save(r record) error {
	file := filepath.Join(p.Root, RecordPath)
	if err := p.write(file, r); err != nil {
		return fmt.Errorf("cannot write what is projected: %w", err)
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

func (p *Projector) write(file string, r record) error {
	if len(r.Items) == 0 {
		if err := p.Disk.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return p.Disk.Sync(filepath.Dir(file))
	}
	r.Format = recordFormat
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return hostfiles.Replace(p.Disk, file, append(data, '\n'), 0o600)
}
