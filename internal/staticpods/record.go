package staticpods

import (
	"errors"
	"io/fs"
	"maps"
	"slices"

	"machine-pivot/internal/hostfiles"
)

// RecordPath is the file that says what was written. It is in the /etc whose files it describes: another
// deployment that is booted has its own.
const RecordPath = "/etc/pivot/static-pods.json"

const recordFormat = 1

// record has the digests of what was written, or is being written, by path.
type record map[string][]hostfiles.Digest

func (r record) has(target string, d hostfiles.Digest) bool { return slices.Contains(r[target], d) }

// document is the JSON form of a record.
type document struct {
	Format int    `json:"format"`
	Files  record `json:"files"`
}

func (w *Writer) file() hostfiles.StateFile {
	return hostfiles.StateFile{
		Root: w.Root, Path: RecordPath, Name: "the record of static pods, " + RecordPath, Format: recordFormat, Disk: w.Disk, Mode: 0o644,
		Remedy: "remove it, and those files of " + w.To + " that are in " + w.From + ", too",
	}
}

// load reads the record. Without a file, nothing was written.
func (w *Writer) load() (record, error) {
	var d document
	if err := w.file().Decode(&d); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if d.Files == nil {
		d.Files = record{}
	}
	return d.Files, nil
}

// save writes the record, unless the file has it.
func (w *Writer) save(r record) error {
	before, err := w.load()
	switch {
	case err != nil:
		return err
	case maps.EqualFunc(before, r, slices.Equal[[]hostfiles.Digest]):
		return nil
	case len(r) == 0:
		return w.file().Remove()
	}
	return w.file().Save(document{recordFormat, r})
}
