package ostree

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"machine-pivot/internal/hostfiles"
)

// refName matches valid ref names (ostree-core.c, OSTREE_REF_REGEXP).
var refName = regexp.MustCompile(`^[\w\d][-._\w\d]*(/[\w\d][-._\w\d]*)*$`)

// ResolveRef returns the commit that a local ref points to.
func (r *Repo) ResolveRef(ref string) (Checksum, error) {
	if !refName.MatchString(ref) {
		return Checksum{}, fmt.Errorf("cannot resolve ref %q: bad name", ref)
	}
	data, err := os.ReadFile(r.refPath(ref))
	if err != nil {
		return Checksum{}, fmt.Errorf("cannot resolve ref: %w", err)
	}
	return ParseChecksum(strings.TrimSpace(string(data)))
}

// RefsTo returns the names of the local refs below a directory of refs that point to c, sorted.
func (r *Repo) RefsTo(below string, c Checksum) ([]string, error) {
	all, err := r.Refs(below)
	maps.DeleteFunc(all, func(_ string, to Checksum) bool { return to != c })
	return slices.Sorted(maps.Keys(all)), err
}

// Refs returns the local refs below a directory of refs, and the commits they point to. Other
// files are ignored.
func (r *Repo) Refs(below string) (map[string]Checksum, error) {
	refs := map[string]Checksum{}
	err := filepath.WalkDir(r.refPath(below), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		ref, err := filepath.Rel(r.refPath(""), path)
		if err != nil {
			return err
		}
		if to, err := r.ResolveRef(ref); err == nil {
			refs[ref] = to
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot list refs below %s: %w", below, err)
	}
	return refs, nil
}

// SetRefs sets local refs to c, durably.
func (r *Repo) SetRefs(c Checksum, refs ...string) (err error) {
	written, err := r.writeRefs([]Root{{Commit: c, Refs: refs}})
	defer func() { err = errors.Join(err, written.drop()) }()
	if err == nil {
		err = r.syncRefs(written)
	}
	if err == nil {
		err = r.placeRefs(written)
	}
	return err
}

func (r *Repo) refPath(ref string) string { return filepath.Join(r.path, "refs/heads", ref) }

// newRef is a ref. Its file has been written under a temporary name. file is "" once the ref has been placed.
type newRef struct{ ref, file string }

// newRefs are refs to be placed.
type newRefs []newRef

// writeRefs writes the files of all refs of roots under temporary names. It does not sync
// them, so that one sync of the file system can cover all of them and the objects. With an
// error it returns the refs that were written.
func (r *Repo) writeRefs(roots []Root) (written newRefs, err error) {
	for _, root := range roots {
		for _, ref := range root.Refs {
			file, err := r.writeRef(ref, root.Commit)
			if err != nil {
				return written, fmt.Errorf("cannot set ref %s: %w", ref, err)
			}
			written = append(written, newRef{ref, file})
		}
	}
	return written, nil
}

func (r *Repo) writeRef(ref string, c Checksum) (string, error) {
	if !refName.MatchString(ref) {
		return "", fmt.Errorf("bad name")
	}
	// Not in the ref's directory, because every file below refs/heads is a ref.
	tmp, err := os.CreateTemp(filepath.Join(r.path, "tmp"), "pivot-ref-*")
	if err != nil {
		return "", err
	}
	_, err = tmp.WriteString(c.String() + "\n")
	if err = errors.Join(err, tmp.Chmod(0o644), hostfiles.InheritLabel(tmp.Name()), tmp.Close()); err != nil {
		return "", errors.Join(err, os.Remove(tmp.Name()))
	}
	return tmp.Name(), nil
}

// syncRefs syncs the files of refs one by one.
func (r *Repo) syncRefs(written newRefs) error {
	if !r.config.fsync {
		return nil
	}
	for _, n := range written {
		if err := syncFile(n.file); err != nil {
			return fmt.Errorf("cannot set ref %s: %w", n.ref, err)
		}
	}
	return nil
}

// placeRefs sets refs durably: it renames their files, which must be synced already, and syncs
// the directories.
func (r *Repo) placeRefs(written newRefs) error {
	touched := map[string]bool{}
	for i, n := range written {
		path := r.refPath(n.ref)
		if !touched[filepath.Dir(path)] {
			if err := r.makeRefDir(filepath.Dir(n.ref), touched); err != nil {
				return fmt.Errorf("cannot set ref %s: %w", n.ref, err)
			}
		}
		if err := os.Rename(n.file, path); err != nil {
			return fmt.Errorf("cannot set ref %s: %w", n.ref, err)
		}
		written[i].file = ""
	}
	return r.syncDirs(touched)
}

// drop removes the temporary files of refs that have not been placed.
func (written newRefs) drop() (err error) {
	for _, n := range written {
		if n.file != "" {
			err = errors.Join(err, os.Remove(n.file))
		}
	}
	return err
}

// makeRefDir creates a directory of refs and its parents. It adds all directories up to
// refs/heads to touched, since they may be new and must be synced.
func (r *Repo) makeRefDir(dir string, touched map[string]bool) error {
	if err := os.MkdirAll(r.refPath(dir), 0o755); err != nil {
		return err
	}
	path := r.refPath("")
	touched[path] = true
	for name := range strings.SplitSeq(dir, "/") {
		path = filepath.Join(path, name)
		touched[path] = true
		if err := hostfiles.InheritLabel(path); err != nil {
			return err
		}
	}
	return nil
}

// DeleteRef deletes a local ref durably. It is a no-op if the ref does not exist.
func (r *Repo) DeleteRef(ref string) error {
	if !refName.MatchString(ref) {
		return fmt.Errorf("cannot delete ref %q: bad name", ref)
	}
	path := r.refPath(ref)
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = r.syncDirs(map[string]bool{filepath.Dir(path): true})
	}
	if err != nil {
		return fmt.Errorf("cannot delete ref: %w", err)
	}
	return nil
}
