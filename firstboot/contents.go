package firstboot

import (
	"errors"
	"io/fs"
	"slices"

	"machine-pivot/fault"
	"machine-pivot/hostfiles"
	"machine-pivot/pivot"
)

// know remembers the contents of files for this run. A target has only digests.
func (m *Machine) know(files []hostfiles.File) []hostfiles.Entry {
	if m.contents == nil {
		m.contents = map[hostfiles.Digest][]byte{}
	}
	entries := hostfiles.Entries(files)
	for i, e := range entries {
		m.contents[e.Digest] = files[i].Content
	}
	return entries
}

// files are entries of a target with their contents: as this run has read them, or
// as an earlier attempt kept them.
func (m *Machine) files(entries []hostfiles.Entry) ([]hostfiles.File, error) {
	files := make([]hostfiles.File, len(entries))
	for i, e := range entries {
		content, known := m.contents[e.Digest]
		if !known {
			var err error
			content, err = m.Progress.Journal.Content(e.Digest)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, fault.New(fault.Refused, "cannot go on: the transaction's %s is lost: %w", e.Path, err).
					WithHint("put the file back, remove %s and start over", m.Progress.Journal.Path)
			}
			if err != nil {
				return nil, err
			}
		}
		files[i] = hostfiles.File{Path: e.Path, Mode: e.Mode, UID: e.UID, GID: e.GID, Content: content}
	}
	return files, nil
}

// adopted are the target's files that were not asked for.
func adopted(target, asked pivot.Target) []hostfiles.Entry {
	paths := asked.Paths()
	return slices.DeleteFunc(slices.Clone(target.Files), func(e hostfiles.Entry) bool { return slices.Contains(paths, e.Path) })
}
