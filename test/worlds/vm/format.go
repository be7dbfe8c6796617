package vm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// makeExt4 makes a file system in a partition, with the contents of dir and further options of mkfs.ext4.
func makeExt4(ctx context.Context, disk string, p partition, dir string, options ...string) error {
	argv := append([]string{"mkfs.ext4", "-q", "-F", "-L", p.name, "-E", "offset=" + strconv.FormatInt(p.offset, 10), "-d", dir}, options...)
	_, err := run(ctx, append(argv, disk, strconv.FormatInt(p.size>>10, 10)+"k")...)
	return err
}

// makeMounted makes a file system of a kind that this host's kernel writes, with the contents of dir.
func makeMounted(ctx context.Context, kind FileSystem, disk string, p partition, dir string) error {
	if err := onLoop(ctx, disk, p, "mkfs."+string(kind), "-q", "-L", p.name); err != nil {
		return err
	}
	_, err := mounted(ctx, disk, fileSystem{kind, p}, `cp -a "$2/." "$1"`, dir)
	return err
}

//go:embed oldxfs.sh
var oldXFSScript string

// makeOldXFS makes a file system in version 4 of XFS, with the contents of dir, all owned by root.
func makeOldXFS(ctx context.Context, disk string, p partition, dir string) error {
	list, err := run(ctx, "bash", "-ec", oldXFSScript, "list", dir)
	if err != nil {
		return err
	}
	file := disk + ".xfs"
	if err := os.WriteFile(file, list, 0o600); err != nil {
		return err
	}
	return errors.Join(onLoop(ctx, disk, p, "mkfs.xfs", "-q", "-m", "crc=0", "-L", p.name, "-p", file), os.Remove(file))
}

// onLoop runs a program for a partition, as a loop device: few can make a file system at an offset in a file.
func onLoop(ctx context.Context, disk string, p partition, argv ...string) error {
	const script = `loop=$(losetup --find --show --offset "$1" --sizelimit "$2" "$3")
trap 'losetup --detach "$loop"' EXIT
shift 3
"$@" "$loop"`
	_, err := run(ctx, append([]string{"bash", "-ec", script, filepath.Base(disk), strconv.FormatInt(p.offset, 10), strconv.FormatInt(p.size, 10), disk}, argv...)...)
	return err
}

// mounted runs a script with a file system of a disk mounted writable at "$1" and with args from
// "$2" on, and returns its output. Other processes do not see the mount.
func mounted(ctx context.Context, disk string, f fileSystem, script string, args ...string) (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "vm-mount-*")
	if err != nil {
		return nil, fmt.Errorf("cannot mount %s: %w", disk, err)
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	mount := `mount -o "$1" "$2" "$3"; shift 2; ` + script + `; umount "$1"`
	argv := append([]string{"bash", "-ec", mount, filepath.Base(disk), f.options(), disk, dir}, args...)
	return outputPrivate(ctx, argv...)
}
