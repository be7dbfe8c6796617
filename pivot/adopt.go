package pivot

import (
	"errors"
	"io/fs"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// adopt makes the files that the machine has already, of the contributors' kinds, part
// of the target. libostree carries those files over by itself; as part of the target
// they are also read back in the new deployment, proven on the next boot, and verified
// from then on. What was there at the first commit is what must arrive: a system that
// came up without it has nothing to adopt.
func (c *Converger) adopt(target Target) (Target, error) {
	if record := c.Progress.Record; record.WasCommitted() {
		if known := withFiles(target, record.Target.Files); known.Same(record.Target) {
			return known, nil
		}
	}
	for _, contributor := range c.Contributors {
		own, err := contributor.Own()
		if err != nil {
			return target, err
		}
		target = withFiles(target, c.know(own))
	}
	return target, nil
}

// withFiles is the target with those files that it does not ask for itself.
func withFiles(target Target, files []hostfiles.Entry) Target {
	asked := target.Paths()
	target.Files = slices.Clone(target.Files)
	for _, f := range files {
		if !slices.Contains(asked, f.Path) {
			target.Files = append(target.Files, f)
		}
	}
	return target
}

// notAskedFor are the files of a target that were adopted. Unlike those that are asked
// for, another boot could not read them again.
func notAskedFor(files []hostfiles.File, ask Ask) []hostfiles.File {
	return slices.DeleteFunc(slices.Clone(files), func(f hostfiles.File) bool {
		return slices.ContainsFunc(ask.Files, func(asked hostfiles.File) bool { return asked.Path == f.Path })
	})
}

// know remembers the contents of files for this run. A target has only digests.
func (c *Converger) know(files []hostfiles.File) []hostfiles.Entry {
	if c.contents == nil {
		c.contents = map[hostfiles.Digest][]byte{}
	}
	entries := hostfiles.Entries(files)
	for i, e := range entries {
		c.contents[e.Digest] = files[i].Content
	}
	return entries
}

// files are entries of a target with their contents: as this run has read them, or
// as an earlier attempt kept them.
func (c *Converger) files(entries []hostfiles.Entry) ([]hostfiles.File, error) {
	files := make([]hostfiles.File, len(entries))
	for i, e := range entries {
		content, known := c.contents[e.Digest]
		if !known {
			var err error
			content, err = c.Progress.Journal.Content(e.Digest)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, fault.New(fault.Refused, "cannot go on: the transaction's %s is lost: %w", e.Path, err).
					WithHint("put the file back, remove %s and start over", c.Progress.Journal.Path)
			}
			if err != nil {
				return nil, err
			}
		}
		files[i] = hostfiles.File{Path: e.Path, Mode: e.Mode, UID: e.UID, GID: e.GID, Content: content}
	}
	return files, nil
}
