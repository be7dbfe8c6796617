package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
)

// Configured is a machine with a contributor of entries of every kind in the new system's /etc: a directory, a file, a
// link, and the removal of three local changes.
func Configured(m *Machine) { m.configured = true }

// The paths that are removed. With shipped, the image's file reappears; with the others, nothing.
const (
	shipped = "/etc/shipped"
	added   = "/etc/added"
	unasked = "/etc/unasked"
)

// entries is that contributor.
type entries struct{}

var _ pivot.Contributor = entries{}

// Entries implements pivot.Contributor.
func (entries) Entries() ([]hostfiles.File, error) {
	return []hostfiles.File{
		hostfiles.NewDirectory("/etc/keys.d", 0o700),
		hostfiles.NewFile("/etc/keys.d/key", 0o600, []byte(secret)),
		hostfiles.NewLink("/etc/link", "keys.d/key"),
		hostfiles.Default(shipped), hostfiles.Default(added), hostfiles.Absent(unasked),
	}, nil
}

// Check implements pivot.Contributor.
func (entries) Check(pivot.Plan, []hostfiles.File) ([]string, error) { return nil, nil }

// Drift implements pivot.Contributor.
func (entries) Drift(pivot.State, pivot.Target) ([]pivot.Difference, error) { return nil, nil }

// contributors returns the machine's contributors, besides the program's own.
func (m *Machine) contributors() []pivot.Contributor {
	if m.configured {
		return []pivot.Contributor{entries{}}
	}
	return nil
}

// changedEntries returns the local changes in the old system's /etc.
func (m *Machine) changedEntries() []hostfiles.File {
	if !m.configured {
		return nil
	}
	return []hostfiles.File{
		hostfiles.NewFile(shipped, 0o644, []byte("changed")), hostfiles.NewFile(added, 0o644, []byte("added")),
		hostfiles.NewFile(unasked, 0o644, []byte("of the image, too")),
	}
}

// put creates one entry in a deployment that already has the image's files.
func put(root string, f hostfiles.File) error {
	path := root + f.Path
	if f.OnDisk() != f.Path {
		return setPassword(root, f)
	}
	switch f.Kind {
	case hostfiles.KindDirectory:
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
		return errors.Join(own(path, f), os.Chmod(path, f.Mode))
	case hostfiles.KindLink:
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := remove(path); err != nil {
			return err
		}
		return os.Symlink(f.Target, path)
	case hostfiles.KindAbsent:
		return remove(path)
	case hostfiles.KindDefault:
		content, err := os.ReadFile(filepath.Join(root, "usr", f.Path))
		if err == nil {
			return os.WriteFile(path, content, 0o644)
		}
		return remove(path)
	}
	if err := writeAll(map[string]string{path: string(f.Content)}); err != nil {
		return err
	}
	return errors.Join(own(path, f), os.Chmod(path, f.Mode))
}

// remove removes what there may be at a path.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// own sets the owner of an entry. It does nothing unless it runs as root.
func own(path string, f hostfiles.File) error { return (&inode{uid: f.UID, gid: f.GID}).own(path) }

// wholeEntries checks that B has all of the entries, and that A is unchanged.
func (m *Machine) wholeEntries(root string, isB bool) error {
	if !m.configured {
		return nil
	}
	wanted, _ := entries{}.Entries()
	for _, want := range wanted {
		got, there, err := hostfiles.Read(root, want.Path)
		if err != nil {
			return err
		}
		var whole bool
		switch was := m.before(want.Path); {
		case !isB:
			whole = got.Entry == was.Entry
		case want.Path == shipped:
			whole = string(got.Content) == imageHas(commitB)
		case want.Path == added, want.Path == unasked:
			whole = !there
		default:
			got.UID, got.GID = 0, 0 // the test may not run as root
			whole = got.Entry == want.Entry
		}
		if !whole {
			return fmt.Errorf("a mixture: in %.1s %s is a %s", filepath.Base(root), want.Path, got.Entry)
		}
	}
	return nil
}

// before returns the old system's entry at a path.
func (m *Machine) before(path string) hostfiles.File {
	for _, f := range m.changedEntries() {
		if f.Path == path {
			f.UID, f.GID = os.Getuid(), os.Getgid()
			return f
		}
	}
	return hostfiles.File{}
}

// imageHas returns the content of the shipped file in a commit's image.
func imageHas(commit string) string { return "of " + commit[:1] }
