package merge

import (
	"path"
	"slices"
)

// noteVarFiles adds a note about files of the layers below /var, which an existing host does
// not get.
func (t *Tree) noteVarFiles() error {
	var lost []string
	for _, l := range t.layers {
		if err := l.root.load(t.objects); err != nil {
			return err
		}
		if state := l.root.dirs["var"]; state != nil {
			if err := t.filesBelow(state, "/var", &lost); err != nil {
				return err
			}
		}
	}
	if len(lost) > 0 {
		t.notes.add("%d file(s) below /var, as %s, are for new installations: a host that has a /var keeps it as it is", len(lost), slices.Min(lost))
	}
	return nil
}

// filesBelow lists the files below a directory of /var, except in directories whose content
// programs recreate.
func (t *Tree) filesBelow(d *dir, at string, found *[]string) error {
	switch at {
	case "/var/tmp", "/var/cache", "/var/log":
		return nil
	}
	if err := d.load(t.objects); err != nil {
		return err
	}
	for name := range d.files {
		if !isWhiteout(name) {
			*found = append(*found, path.Join(at, name))
		}
	}
	for name, below := range d.dirs {
		if err := t.filesBelow(below, path.Join(at, name), found); err != nil {
			return err
		}
	}
	return nil
}
