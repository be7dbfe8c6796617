package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"syscall"
)

// Contents are what is on a powered-off machine's disk: its file systems, mounted read-only, the
// one for /boot on the root's, in a mount namespace of a process of their own. Nobody else sees
// them, and they are gone when that process is, whatever becomes of this one. Close them.
//
// Paths are from the root of the disk, not of a deployment: see StateRoot, VarDir and
// Deployments. No link leads out of the disk.
type Contents struct {
	disk    string
	parts   []fileSystem // the root first
	dir     string       // what they are mounted on
	holder  *exec.Cmd    // has the namespace, until it is told to unmount
	release io.Closer    // tells it so
	said    bytes.Buffer // by the holder, if it failed
	root    *os.Root
}

// Open mounts what is on the disk. Each file system is first mounted writable for a moment: only then
// does the kernel replay its journal, as it does at the next boot. Without that files can seem absent
// or old after a power cut.
func (m *Machine) Open(ctx context.Context) (*Contents, error) {
	parts, err := fileSystemsOn(ctx, m.Disk)
	if err != nil {
		return nil, err
	}
	c := &Contents{disk: m.Disk, parts: parts}
	if err := c.mount(ctx); err != nil {
		return nil, fmt.Errorf("cannot mount disk %s: %w", m.Disk, errors.Join(err, c.Close()))
	}
	return c, nil
}

// holdScript mounts file systems of the disk $1, at a path below the directory $2 and with options
// each, says so, and unmounts them at the end of its input. What has just been read may be in use for
// a moment more: a program that starts has all that this one has open, until it is executed.
const holdScript = `disk=$1 dir=$2; shift 2
while [ $# -gt 0 ]; do
	mount -o "rw,$2" "$disk" "$dir$1"; umount "$dir$1"; mount -o "ro,$2" "$disk" "$dir$1"; shift 2
done
echo mounted; read -r _ || for _ in {1..200}; do
	! umount -R "$dir" 2>/dev/null || exit 0
	sleep 0.05
done
umount -R "$dir"`

// mount starts the holder and waits until it has mounted all.
func (c *Contents) mount(ctx context.Context) (err error) {
	if c.dir, err = os.MkdirTemp("", "vm-mount-*"); err != nil {
		return err
	}
	argv := []string{"-ec", holdScript, "hold", c.disk, c.dir}
	for _, p := range c.parts {
		argv = append(argv, p.mountPoint(), p.options())
	}
	c.holder = private(exec.CommandContext(ctx, "bash", argv...))
	c.holder.Stderr = &c.said
	if c.release, err = c.holder.StdinPipe(); err != nil {
		return err
	}
	out, err := c.holder.StdoutPipe()
	if err == nil {
		err = c.holder.Start()
	}
	if err == nil {
		_, err = io.ReadFull(out, make([]byte, len("mounted\n")))
	}
	if err == nil {
		c.root, err = os.OpenRoot(c.path("/"))
	}
	return err
}

// path is how other programs find a path of the disk. They must not follow links.
func (c *Contents) path(name string) string {
	return fmt.Sprintf("/proc/%d/root%s%s", c.holder.Process.Pid, c.dir, name)
}

// Close unmounts them.
func (c *Contents) Close() error {
	var err error
	if c.root != nil {
		err = c.root.Close()
	}
	if c.holder != nil && c.holder.Process != nil {
		err = errors.Join(err, c.release.Close())
		if werr := c.holder.Wait(); werr != nil {
			err = errors.Join(err, fmt.Errorf("%w: %s", werr, strings.TrimSpace(c.said.String())))
		}
	}
	// Not before: to remove what is mounted on elsewhere unmounts it there.
	return errors.Join(err, os.Remove(c.dir))
}

// look calls f with what is on the disk.
func look[T any](ctx context.Context, m *Machine, f func(*Contents) (T, error)) (found T, err error) {
	c, err := m.Open(ctx)
	if err != nil {
		return found, err
	}
	found, err = f(c)
	return found, errors.Join(err, c.Close())
}

// ReadFile reads a file from a powered-off machine's disk: see Contents.
func (m *Machine) ReadFile(name string) ([]byte, error) {
	return look(context.Background(), m, func(c *Contents) ([]byte, error) { return c.ReadFile(name) })
}

// ReadFile reads a file.
func (c *Contents) ReadFile(name string) ([]byte, error) {
	content, err := c.root.ReadFile(within(name))
	if err != nil {
		return nil, fmt.Errorf("cannot read disk %s: %w", c.disk, err)
	}
	return content, nil
}

// within is a path below the root.
func within(name string) string { return strings.TrimPrefix(path.Clean(name), "/") }

// list names what a directory holds.
func (c *Contents) list(dir string) (names []string, err error) {
	entries, err := fs.ReadDir(c.root.FS(), within(dir))
	if err != nil {
		return nil, fmt.Errorf("cannot read disk %s: %w", c.disk, err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Deployments are the deployments' directories on a powered-off machine's disk.
func (m *Machine) Deployments() ([]string, error) {
	names, err := look(context.Background(), m, func(c *Contents) ([]string, error) { return c.list(StateRoot + "/deploy") })
	var dirs []string
	for _, name := range names {
		if !strings.HasSuffix(name, ".origin") {
			dirs = append(dirs, StateRoot+"/deploy/"+name)
		}
	}
	return dirs, err
}

// EntriesIn are what is below a directory, by their paths from there: mode and owner, and a
// file's SHA-256 or a link's target.
func (c *Contents) EntriesIn(dir string) (map[string]string, error) {
	entries := map[string]string{}
	below, err := fs.Sub(c.root.FS(), within(dir))
	if err == nil {
		err = fs.WalkDir(below, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || name == "." {
				return err
			}
			entries[name], err = describe(below, name, d)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list %s on disk %s: %w", dir, c.disk, err)
	}
	return entries, nil
}

// describe is an entry in one line.
func describe(dir fs.FS, name string, d fs.DirEntry) (string, error) {
	info, err := d.Info()
	if err != nil {
		return "", err
	}
	st := info.Sys().(*syscall.Stat_t)
	text := fmt.Sprintf("%v %d:%d ", info.Mode(), st.Uid, st.Gid)
	switch info.Mode().Type() {
	case 0:
		content, err := fs.ReadFile(dir, name)
		return fmt.Sprintf("%s%x", text, sha256.Sum256(content)), err
	case fs.ModeSymlink:
		target, err := fs.ReadLink(dir, name)
		return text + target, err
	}
	return text, nil
}

// Refs names the refs in the ostree repository on the disk, sorted.
func (c *Contents) Refs() (refs []string, err error) {
	heads, err := fs.Sub(c.root.FS(), "ostree/repo/refs/heads")
	if err == nil {
		err = fs.WalkDir(heads, ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				refs = append(refs, name)
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list refs: %w", err)
	}
	slices.Sort(refs)
	return refs, nil
}

// Fsck says what of the ostree repository on the disk is not whole: an object that is not what
// its name says, a commit that lacks one or is marked as partial, a ref to no commit.
func (c *Contents) Fsck(ctx context.Context) error {
	_, err := run(ctx, "ostree", "fsck", "--quiet", "--repo="+c.path("/ostree/repo"))
	partial, gerr := fs.Glob(c.root.FS(), "ostree/repo/state/*.commitpartial")
	if err = errors.Join(err, gerr); err == nil && len(partial) > 0 {
		err = fmt.Errorf("%s is there", partial[0])
	}
	if err != nil {
		return fmt.Errorf("the repository is not whole: %w", err)
	}
	return nil
}
