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

// Contents gives access to the file systems on a powered-off machine's disk. They are mounted read-only, /boot on top
// of the root, in the mount namespace of a helper process. No other process sees the mounts, and they vanish with the
// helper even if this process crashes. The caller must call Close.
//
// Paths are relative to the root of the disk, not of a deployment: see StateRoot, VarDir and
// Deployments. Symbolic links cannot lead outside the disk.
type Contents struct {
	disk    string
	parts   []fileSystem // the root first
	dir     string       // the mount point of the root
	holder  *exec.Cmd    // the helper process that holds the mount namespace
	release io.Closer    // the holder's standard input; closing it makes the holder unmount
	stderr  bytes.Buffer // of the holder
	root    *os.Root
}

// Open mounts the file systems of the disk. It first mounts each one writable for a moment, because
// only then does the kernel replay the journal, as the next boot would. Otherwise files could be
// missing or outdated after a power cut.
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

// holdScript is called with a disk, a directory, and for each file system a path below that
// directory and mount options. It mounts the file systems, prints "mounted", and unmounts them at
// the end of its input. It retries the unmount for a while: a child that this process has forked
// keeps all of its files open until it calls exec.
const holdScript = `disk=$1 dir=$2; shift 2
while [ $# -gt 0 ]; do
	mount -o "rw,$2" "$disk" "$dir$1"; umount "$dir$1"; mount -o "ro,$2" "$disk" "$dir$1"; shift 2
done
echo mounted; read -r _ || for _ in {1..200}; do
	! umount -R "$dir" 2>/dev/null || exit 0
	sleep 0.05
done
umount -R "$dir"`

// mount starts the holder and waits until it has mounted all file systems.
func (c *Contents) mount(ctx context.Context) (err error) {
	if c.dir, err = os.MkdirTemp("", "vm-mount-*"); err != nil {
		return err
	}
	argv := []string{"-ec", holdScript, "hold", c.disk, c.dir}
	for _, p := range c.parts {
		argv = append(argv, p.mountPoint(), p.options())
	}
	c.holder = private(exec.CommandContext(ctx, "bash", argv...))
	c.holder.Stderr = &c.stderr
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

// path returns a path of the disk as other programs can open it. They must not follow symbolic
// links, which would lead outside the disk.
func (c *Contents) path(name string) string {
	return fmt.Sprintf("/proc/%d/root%s%s", c.holder.Process.Pid, c.dir, name)
}

// Close unmounts the file systems.
func (c *Contents) Close() error {
	var err error
	if c.root != nil {
		err = c.root.Close()
	}
	if c.holder != nil && c.holder.Process != nil {
		err = errors.Join(err, c.release.Close())
		if werr := c.holder.Wait(); werr != nil {
			err = errors.Join(err, fmt.Errorf("%w: %s", werr, strings.TrimSpace(c.stderr.String())))
		}
	}
	// Only now: removing a mount point would unmount it in other namespaces.
	return errors.Join(err, os.Remove(c.dir))
}

// withContents opens the machine's disk, calls f with its contents and closes them.
func withContents[T any](ctx context.Context, m *Machine, f func(*Contents) (T, error)) (found T, err error) {
	c, err := m.Open(ctx)
	if err != nil {
		return found, err
	}
	found, err = f(c)
	return found, errors.Join(err, c.Close())
}

// ReadFile reads a file from a powered-off machine's disk. See Contents about paths.
func (m *Machine) ReadFile(name string) ([]byte, error) {
	return withContents(context.Background(), m, func(c *Contents) ([]byte, error) { return c.ReadFile(name) })
}

// ReadFile reads a file.
func (c *Contents) ReadFile(name string) ([]byte, error) {
	content, err := c.root.ReadFile(within(name))
	if err != nil {
		return nil, fmt.Errorf("cannot read disk %s: %w", c.disk, err)
	}
	return content, nil
}

// within returns name relative to the root of the disk.
func within(name string) string { return strings.TrimPrefix(path.Clean(name), "/") }

// list returns the names of a directory's entries.
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

// ChangeBoot runs a shell script in the file system of a powered-off machine's disk that has /boot.
func (m *Machine) ChangeBoot(ctx context.Context, script string) error {
	parts, err := fileSystemsOn(ctx, m.Disk)
	if err != nil {
		return err
	}
	_, err = mounted(ctx, m.Disk, parts[len(parts)-1], `(cd "$1"; `+script+`)`)
	return err
}

// Deployments returns the directories of the deployments on a powered-off machine's disk.
func (m *Machine) Deployments() ([]string, error) {
	names, err := withContents(context.Background(), m, func(c *Contents) ([]string, error) { return c.list(StateRoot + "/deploy") })
	var dirs []string
	for _, name := range names {
		if !strings.HasSuffix(name, ".origin") {
			dirs = append(dirs, StateRoot+"/deploy/"+name)
		}
	}
	return dirs, err
}

// EntriesIn describes everything below a directory, by relative path: mode and owner, and a file's
// SHA-256 or a symbolic link's target.
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

// describe returns a one-line description of an entry.
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

// Refs returns the refs of the ostree repository on the disk, sorted.
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

// ErrPartial is why a repository is not whole if all that is wrong is a commit that is marked as partial: a pull
// knows that it has to complete it.
var ErrPartial = errors.New("a commit is marked as partial")

// Fsck checks the ostree repository on the disk. It returns an error if an object does not match
// its checksum, a commit lacks an object or is marked as partial, or a ref points to no commit.
func (c *Contents) Fsck(ctx context.Context) error {
	_, err := run(ctx, "ostree", "fsck", "--quiet", "--repo="+c.path("/ostree/repo"))
	partial, gerr := fs.Glob(c.root.FS(), "ostree/repo/state/*.commitpartial")
	if err = errors.Join(err, gerr); err == nil && len(partial) > 0 {
		err = fmt.Errorf("%w: %s is there", ErrPartial, partial[0])
	}
	if err != nil {
		return fmt.Errorf("the repository is not whole: %w", err)
	}
	return nil
}
