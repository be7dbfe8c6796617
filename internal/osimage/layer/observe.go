package layer

import "path"

// noteVarFiles adds a note about files of the layers below /var, which an existing host does
// not get.
func (t *Tree) noteVarFiles() error {
	var lost varFiles
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
	if lost.number > 0 {
		t.notes.add("%d file(s) below /var, as %s, are for new installations: a host that has a /var keeps it as it is", lost.number, lost.first)
	}
	return nil
}

// varFiles are files below /var.
type varFiles struct {
	number int
	first  string // of their names, in order
}

func (v *varFiles) add(name string) {
	if v.number++; v.number == 1 || name < v.first {
		v.first = name
	}
}

// filesBelow counts the files below a directory of /var, except in directories with content that programs recreate.
func (t *Tree) filesBelow(d *dir, at string, found *varFiles) error {
	switch at {
	case "/var/tmp", "/var/cache", "/var/log":
		return nil
	}
	if err := d.load(t.objects); err != nil {
		return err
	}
	for name := range d.files {
		if !isWhiteout(name) {
			found.add(path.Join(at, name))
		}
	}
	for name, below := range d.dirs {
		if err := t.filesBelow(below, path.Join(at, name), found); err != nil {
			return err
		}
	}
	return nil
}
