package pods

import (
	"errors"
	"io/fs"
	"maps"
	"slices"

	"machine-pivot/internal/hostfiles"
)

// RecordPath is the file that says what was written. It is in the /etc with the files that it describes: another
// deployment that is booted has its own.
const RecordPath = "/etc/pivot/static-pods.json"

const recordFormat = 1

// record has the digests of what was written, or is being written, by path.
type record map[string][]hostfiles.Digest

func (r record) has(target string, d hostfiles.Digest) bool { return slices.Contains(r[target], d) }

// recordFile is the JSON form of a record.
type recordFile struct {
	Format int    `json:"format"`
	Files  record `json:"files"`
}

func (w *StaticPods) file() hostfiles.StateFile {
	return hostfiles.StateFile{
		Root: w.Root, Path: RecordPath, Name: "the record of static pods, " + RecordPath, Format: recordFormat, Disk: w.Disk, Mode: 0o644,
		Remedy: "remove it, and those files of " + w.To + " that are in " + w.From + ", too",
	}
}

// load reads the record. Without a file, nothing was written.
func (w *StaticPods) load() (record, error) {
	var d recordFile
	if err := w.file().Decode(&d); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if d.Files == nil {
		d.Files = record{}
	}
	return d.Files, nil
}

func (r record) equal(other record) bool {
	return maps.EqualFunc(r, other, slices.Equal[[]hostfiles.Digest])
}

// clone returns a copy that shares nothing with the record.
func (r record) clone() record {
	out := record{}
	for target, digests := range r {
		out[target] = slices.Clone(digests)
	}
	return out
}

// save writes the record, unless the file has it.
func (u *update) save(r record) (err error) {
	switch {
	case u.saved.equal(r):
		return nil
	case len(r) == 0:
		err = u.file().Remove()
	default:
		err = u.file().Save(recordFile{recordFormat, r})
	}
	if err == nil {
		u.saved = r.clone()
	}
	return err
}
