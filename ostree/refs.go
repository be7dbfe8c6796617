package ostree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
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

func (r *Repo) refPath(ref string) string { return filepath.Join(r.path, "refs/heads", ref) }

// setRef sets a local ref, durably and at once.
func (r *Repo) setRef(ref string, c Checksum) (err error) {
	if !refName.MatchString(ref) {
		return fmt.Errorf("cannot set ref %q: bad name", ref)
	}
	path := r.refPath(ref)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("cannot set ref: %w", err)
	}
	// Not beside it: whatever is below refs/heads is a ref.
	tmp, err := os.CreateTemp(filepath.Join(r.path, "tmp"), "pivot-ref-*")
	if err != nil {
		return fmt.Errorf("cannot set ref: %w", err)
	}
	_, err = tmp.WriteString(c.String() + "\n")
	err = errors.Join(err, tmp.Chmod(0o644))
	if r.config.fsync {
		err = errors.Join(err, tmp.Sync())
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot set ref %s: %w", ref, err), os.Remove(tmp.Name()))
	}
	if !r.config.fsync {
		return nil
	}
	// Up to refs/heads: directories on the way may be new.
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if err := syncDir(dir); err != nil || dir == r.refPath("") {
			return err
		}
	}
}
