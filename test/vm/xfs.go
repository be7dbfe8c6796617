package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// xfs is a file system that only a kernel can read: each access mounts it for a
// moment, seen by nobody else. A link to an absolute path leads astray.
type xfs struct {
	disk string
	partition
}

// makeXFS makes a file system in a partition, with what is in dir. mkfs.xfs
// cannot make one in the middle of a file, so it is made beside and moved.
func makeXFS(ctx context.Context, disk string, p partition, dir string) (err error) {
	image := disk + ".xfs"
	defer func() { err = errors.Join(err, os.RemoveAll(image)) }()
	if err := blank(image, p.size); err != nil {
		return err
	}
	if _, err := run(ctx, "mkfs.xfs", "-q", "-L", p.name, image); err != nil {
		return err
	}
	alone := xfs{image, partition{size: p.size}}
	if _, err := alone.mounted(ctx, "rw", `cp -a "$2/." "$1"`, dir); err != nil {
		return err
	}
	_, err = run(ctx, "dd", "if="+image, "of="+disk, "bs=1M", fmt.Sprintf("seek=%d", p.offset>>20), "conv=sparse,notrunc", "status=none")
	return err
}

// replay mounts it writable: only then does the kernel replay the log.
func (x xfs) replay(ctx context.Context) error {
	_, err := x.mounted(ctx, "rw", "true")
	return err
}

func (x xfs) check(ctx context.Context) error {
	_, err := x.mounted(ctx, "ro", `xfs_repair -n "$(findmnt -n -o SOURCE "$1")"`)
	return err
}

func (x xfs) read(ctx context.Context, path string) ([]byte, error) {
	return x.mounted(ctx, "ro", `cat "$1$2"`, path)
}

func (x xfs) readLink(ctx context.Context, path string) (string, error) {
	target, err := x.mounted(ctx, "ro", `readlink -n "$1$2"`, path)
	return string(target), err
}

func (x xfs) list(ctx context.Context, dir string) ([]string, error) {
	out, err := x.mounted(ctx, "ro", `ls -A "$1$2"`, dir)
	var names []string
	for name := range strings.Lines(string(out)) {
		names = append(names, strings.TrimSuffix(name, "\n"))
	}
	return names, err
}

func (x xfs) mounted(ctx context.Context, mode, script string, args ...string) ([]byte, error) {
	// It may be a copy of one that is mounted.
	return mounted(ctx, x.disk, x.partition, mode+",nouuid", script, args...)
}

// mounted runs a script with a partition of a disk mounted at "$1" and further
// arguments, and returns what it prints. Nobody else sees the mount.
func mounted(ctx context.Context, disk string, p partition, options, script string, args ...string) (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "vm-mount-*")
	if err != nil {
		return nil, fmt.Errorf("cannot mount %s: %w", disk, err)
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	options = fmt.Sprintf("%s,loop,offset=%d,sizelimit=%d", options, p.offset, p.size)
	mount := `mount -o "$1" "$2" "$3"; shift 2; ` + script + `; umount "$1"`
	argv := append([]string{"bash", "-ec", mount, filepath.Base(disk), options, disk, dir}, args...)
	return outputPrivate(ctx, argv...)
}
