package vm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
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

// makeOldXFS makes a file system in version 4 of XFS, with the contents of dir, without extended attributes and links. Not
// every kernel can mount it to fill it.
func makeOldXFS(ctx context.Context, disk string, p partition, dir string) error {
	list, err := entries(dir)
	if err != nil {
		return err
	}
	file := disk + ".xfs"
	if err := os.WriteFile(file, []byte("/dev/null\n0 0\nd--755 0 0\n"+list), 0o600); err != nil {
		return err
	}
	return errors.Join(onLoop(ctx, disk, p, "mkfs.xfs", "-q", "-m", "crc=0", "-L", p.name, "-p", file), os.Remove(file))
}

// entries describes what is in a directory, for mkfs.xfs.
func entries(dir string) (list string, err error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range all {
		file := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil {
			return "", err
		}
		kind, content := "-", " "+file+"\n"
		switch info.Mode().Type() {
		case fs.ModeDir:
			kind = "d"
			content, err = entries(file)
			content = "\n" + content
		case fs.ModeSymlink:
			kind = "l"
			content, err = os.Readlink(file)
			content = " " + content + "\n"
		}
		if err != nil {
			return "", err
		}
		owner := info.Sys().(*syscall.Stat_t)
		list += fmt.Sprintf("%s %s%s%03o %d %d%s", e.Name(), kind, setID(info.Mode()), info.Mode().Perm(), owner.Uid, owner.Gid, content)
	}
	return list + "$\n", nil
}

// setID returns the letters of the set-user-ID and the set-group-ID bit.
func setID(mode fs.FileMode) string {
	letters := []byte("--")
	if mode&fs.ModeSetuid != 0 {
		letters[0] = 'u'
	}
	if mode&fs.ModeSetgid != 0 {
		letters[1] = 'g'
	}
	return string(letters)
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
