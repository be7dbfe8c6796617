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

	"machine-pivot/internal/selinux"
)

// refName is the grammar of ref names (ostree-core.c, OSTREE_REF_REGEXP).
var refName = regexp.MustCompile(`^[\w\d][-._\w\d]*(/[\w\d][-._\w\d]*)*$`)

// ResolveRef reads a local ref.
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

// RefsTo lists the local refs below a directory of refs that resolve to c.
func (r *Repo) RefsTo(below string, c Checksum) ([]string, error) {
	all, err := r.Refs(below)
	maps.DeleteFunc(all, func(_ string, to Checksum) bool { return to != c })
	return slices.Sorted(maps.Keys(all)), err
}

// Refs are the local refs below a directory of refs, and what they resolve to. Other files
// are ignored.
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
func (r *Repo) SetRefs(c Checksum, refs ...string) error {
	return r.setRootRefs([]Root{{Commit: c, Refs: refs}})
}

func (r *Repo) refPath(ref string) string { return filepath.Join(r.path, "refs/heads", ref) }

// setRootRefs sets the local refs of roots, durably.
func (r *Repo) setRootRefs(roots []Root) error {
	touched := map[string]bool{}
	for _, root := range roots {
		for _, ref := range root.Refs {
			if err := r.setRef(ref, root.Commit); err != nil {
				return fmt.Errorf("cannot set ref %s: %w", ref, err)
			}
			// All directories up to refs/heads, since they may be new.
			for dir := filepath.Dir(r.refPath(ref)); ; dir = filepath.Dir(dir) {
				if touched[dir] = true; dir == r.refPath("") {
					break
				}
			}
		}
	}
	return r.syncDirs(touched)
}

// setRef replaces one ref. The caller syncs its directory.
func (r *Repo) setRef(ref string, c Checksum) error {
	if !refName.MatchString(ref) {
		return fmt.Errorf("bad name")
	}
	path := r.refPath(ref)
	if err := r.makeRefDir(filepath.Dir(ref)); err != nil {
		return err
	}
	// Not in the ref's directory: every file below refs/heads is a ref.
	tmp, err := os.CreateTemp(filepath.Join(r.path, "tmp"), "pivot-ref-*")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(c.String() + "\n")
	err = errors.Join(err, tmp.Chmod(0o644), selinux.Inherit(tmp.Name()))
	if r.config.fsync {
		err = errors.Join(err, tmp.Sync())
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// makeRefDir makes a directory of refs and its parents.
func (r *Repo) makeRefDir(dir string) error {
	if err := os.MkdirAll(r.refPath(dir), 0o755); err != nil {
		return err
	}
	path := r.refPath("")
	for name := range strings.SplitSeq(dir, "/") {
		path = filepath.Join(path, name)
		if err := selinux.Inherit(path); err != nil {
			return err
		}
	}
	return nil
}

// DeleteRef deletes a local ref. It is no error if the ref does not exist.
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
