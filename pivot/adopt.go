package pivot

import (
	"errors"
	"io/fs"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// adopt adds the contributors' entries, most of which the machine already has, to the target.
// libostree would carry them over anyway. As part of the target they are also read back from
// the new deployment, proven on the next boot, and verified from then on.
//
// After a commit the entries come from the record, because a system that came up without them
// has nothing to adopt. A run by hand has no later attempts, so it collects them every time.
func (c *Converger) adopt(ask Ask, target Target) (Target, error) {
	if record := c.Progress.Record; record.WasCommitted() && !ask.ByHand {
		if known := withEntries(target, record.Target.Entries); known.Same(record.Target) {
			return known, nil
		}
	}
	for _, contributor := range c.Contributors {
		entries, err := contributor.Entries()
		if err != nil {
			return target, err
		}
		target = withEntries(target, c.know(entries))
	}
	return target, nil
}

// withEntries returns the target with those of entries whose paths it does not have yet.
func withEntries(target Target, entries []hostfiles.Entry) Target {
	asked := target.Paths()
	target.Entries = slices.Clone(target.Entries)
	for _, e := range entries {
		if !slices.Contains(asked, e.Path) {
			target.Entries = append(target.Entries, e)
		}
	}
	return target
}

// notAskedFor returns the adopted ones of a target's files. Unlike the requested ones, a later
// boot could not read them again.
func notAskedFor(files []hostfiles.File, ask Ask) []hostfiles.File {
	return slices.DeleteFunc(slices.Clone(files), func(f hostfiles.File) bool {
		return slices.ContainsFunc(ask.Entries, func(asked hostfiles.File) bool { return asked.Path == f.Path })
	})
}

// know remembers the contents of files for this run, because a target has only digests, and
// returns the files' entries.
func (c *Converger) know(files []hostfiles.File) []hostfiles.Entry {
	if c.contents == nil {
		c.contents = map[hostfiles.Digest][]byte{}
	}
	for _, f := range files {
		c.contents[f.Digest] = f.Content
	}
	return hostfiles.Entries(files)
}

// files returns the entries of a target with their contents, which this run has read or an
// earlier attempt has kept.
func (c *Converger) files(entries []hostfiles.Entry) ([]hostfiles.File, error) {
	files := make([]hostfiles.File, len(entries))
	for i, e := range entries {
		content, known := c.contents[e.Digest]
		if !known && e.Kind == hostfiles.KindFile {
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
		files[i] = hostfiles.File{Entry: e, Content: content}
	}
	return files, nil
}
