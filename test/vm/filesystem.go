package vm

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// fileSystem is one on a powered-off machine's disk. Paths are from its root.
type fileSystem interface {
	// replay brings it to what was last written, which a boot loader that reads
	// its journal does too: without it files can seem absent or old after a
	// power cut.
	replay(ctx context.Context) error
	// check says in what it is not clean. It changes nothing.
	check(ctx context.Context) error
	read(ctx context.Context, path string) ([]byte, error)
	readLink(ctx context.Context, path string) (string, error)
	// list names what a directory holds.
	list(ctx context.Context, dir string) ([]string, error)
	// mounted runs a script with it mounted at "$1", "ro" or "rw", and further
	// arguments, and returns what it prints.
	mounted(ctx context.Context, mode, script string, args ...string) ([]byte, error)
}

// contents are the file systems on a disk.
type contents struct {
	root, boot fileSystem // boot is nil where the root holds /boot
}

// contents finds what is on a powered-off machine's disk and replays it.
func (m *Machine) contents(ctx context.Context) (contents, error) {
	var c contents
	parts, err := m.partitions(ctx)
	if err != nil {
		return c, err
	}
	for _, p := range parts {
		fs, err := fileSystemOn(m.Disk, p)
		if err != nil {
			return c, err
		}
		if fs == nil {
			return c, fmt.Errorf("cannot read disk %s: its partition %s holds no known file system", m.Disk, p.name)
		}
		if err := fs.replay(ctx); err != nil {
			return c, err
		}
		switch p.name {
		case rootPartition:
			c.root = fs
		case bootPartition:
			c.boot = fs
		}
	}
	if c.root == nil {
		return c, fmt.Errorf("cannot read disk %s: it has no root", m.Disk)
	}
	return c, nil
}

// partitions are those of the disk, or its root alone where that is the whole disk.
func (m *Machine) partitions(ctx context.Context) ([]partition, error) {
	info, err := os.Stat(m.Disk)
	if err != nil {
		return nil, fmt.Errorf("cannot read disk: %w", err)
	}
	whole := partition{name: rootPartition, size: info.Size()}
	if fs, err := fileSystemOn(m.Disk, whole); err != nil || fs != nil {
		return []partition{whole}, err
	}
	return partitionsOf(ctx, m.Disk)
}

// fileSystemOn tells by its magic number what is in a partition; nil: nothing known.
func fileSystemOn(disk string, p partition) (fileSystem, error) {
	f, err := os.Open(disk)
	if err != nil {
		return nil, fmt.Errorf("cannot read disk: %w", err)
	}
	defer f.Close()
	head := make([]byte, 2<<10)
	if _, err := f.ReadAt(head, p.offset); err != nil {
		return nil, fmt.Errorf("cannot read disk %s: %w", disk, err)
	}
	switch {
	case string(head[:4]) == "XFSB":
		return xfs{disk, p}, nil
	case string(head[1024+56:1024+58]) == "\x53\xef":
		return ext4{disk, p}, nil
	}
	return nil, nil
}

// on is the file system that holds a path of the machine, and the path there.
func (c contents) on(path string) (fileSystem, string) {
	if below, ok := strings.CutPrefix(path, "/boot"); ok && c.boot != nil && (below == "" || below[0] == '/') {
		return c.boot, "/" + strings.TrimPrefix(below, "/")
	}
	return c.root, path
}

func (c contents) check(ctx context.Context) error {
	for _, fs := range []fileSystem{c.root, c.boot} {
		if fs == nil {
			continue
		}
		if err := fs.check(ctx); err != nil {
			return fmt.Errorf("the file system is not clean: %w", err)
		}
	}
	return nil
}

func (c contents) read(ctx context.Context, path string) ([]byte, error) {
	fs, path := c.on(path)
	return fs.read(ctx, path)
}

func (c contents) readLink(ctx context.Context, path string) (string, error) {
	fs, path := c.on(path)
	return fs.readLink(ctx, path)
}

func (c contents) list(ctx context.Context, dir string) ([]string, error) {
	fs, dir := c.on(dir)
	return fs.list(ctx, dir)
}

// ReadFile reads a file from a powered-off machine's disk. path is from the
// root of the disk, not of a deployment: see StateRoot, VarDir and Deployments.
func (m *Machine) ReadFile(path string) ([]byte, error) {
	ctx := context.Background() // takes milliseconds
	c, err := m.contents(ctx)
	if err != nil {
		return nil, err
	}
	return c.read(ctx, path)
}

// Deployments are the deployments' directories on a powered-off machine's disk.
func (m *Machine) Deployments() ([]string, error) {
	ctx := context.Background()
	c, err := m.contents(ctx)
	if err != nil {
		return nil, err
	}
	names, err := c.list(ctx, StateRoot+"/deploy")
	var dirs []string
	for _, name := range names {
		if !strings.HasSuffix(name, ".origin") {
			dirs = append(dirs, StateRoot+"/deploy/"+name)
		}
	}
	return dirs, err
}
