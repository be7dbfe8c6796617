package hostfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// WithOverlay calls work in a private mount namespace in which dir also holds
// files, as an overlay whose upper layer lives in memory. Outside of it, and
// after it, dir is untouched. Processes that work starts see the overlay too;
// goroutines that it starts do not.
//
// It is how files join an atomic step of another program: libostree merges the
// /etc it sees into the new deployment.
func WithOverlay(dir string, files []File, work func() error) error {
	return inNamespace(func() error { return overlaid(dir, files, work) })
}

func overlaid(dir string, files []File, work func() error) (err error) {
	scratch, err := os.MkdirTemp("/run", "pivot-etc-*")
	if err != nil {
		return fmt.Errorf("cannot overlay %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, os.Remove(scratch)) }()
	if err := unix.Mount("tmpfs", scratch, "tmpfs", 0, "mode=0700"); err != nil {
		return fmt.Errorf("cannot overlay %s: cannot mount tmpfs: %w", dir, err)
	}
	// Lazily, since the overlay, which outlives this function, still uses it.
	defer func() { err = errors.Join(err, unix.Unmount(scratch, unix.MNT_DETACH)) }()
	if err := mountOverlay(dir, scratch); err != nil {
		return err
	}
	for _, f := range files {
		if err := put(dir, f); err != nil {
			return err
		}
	}
	return work()
}

func mountOverlay(dir, scratch string) error {
	upper, workdir := filepath.Join(scratch, "upper"), filepath.Join(scratch, "work")
	for _, d := range []string{upper, workdir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("cannot overlay %s: %w", dir, err)
		}
	}
	if strings.ContainsAny(dir, `,:\`) {
		return fmt.Errorf("cannot overlay %q: its name has a character that separates mount options", dir)
	}
	if err := copyOwnership(dir, upper); err != nil {
		return err
	}
	options := "lowerdir=" + dir + ",upperdir=" + upper + ",workdir=" + workdir
	if err := unix.Mount("overlay", dir, "overlay", 0, options); err != nil {
		return fmt.Errorf("cannot overlay %s: %w", dir, err)
	}
	return nil
}

// copyOwnership gives the upper layer's root what the directory below it has:
// an overlay's root shows the upper one's.
func copyOwnership(from, to string) error {
	var st unix.Stat_t
	if err := unix.Stat(from, &st); err != nil {
		return fmt.Errorf("cannot overlay %s: %w", from, err)
	}
	return errors.Join(os.Chown(to, int(st.Uid), int(st.Gid)), unix.Chmod(to, st.Mode&0o7777))
}

// put writes one file below dir, which stands for /etc.
func put(dir string, f File) error {
	rel, below := strings.CutPrefix(f.Path, "/etc/")
	if !below {
		return fmt.Errorf("cannot put %s: not below /etc", f.Path)
	}
	root, err := os.OpenRoot(dir) // no link in /etc leads out of it
	if err != nil {
		return fmt.Errorf("cannot put %s: %w", f.Path, err)
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(rel), 0o755); err != nil {
		return fmt.Errorf("cannot put %s: %w", f.Path, err)
	}
	// A new inode: what stands there may be a link, or a hard link to something shared.
	if err := root.Remove(rel); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot put %s: %w", f.Path, err)
	}
	file, err := root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("cannot put %s: %w", f.Path, err)
	}
	defer file.Close()
	if _, err := file.Write(f.Content); err != nil {
		return fmt.Errorf("cannot put %s: %w", f.Path, err)
	}
	// Owner before mode: chown clears the set-id bits.
	if err := errors.Join(file.Chown(f.UID, f.GID), unix.Fchmod(int(file.Fd()), uint32(f.Mode))); err != nil {
		return fmt.Errorf("cannot put %s: %w", f.Path, err)
	}
	return nil
}
