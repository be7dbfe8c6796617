package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// ext4 is a file system that is read by the tools of e2fsprogs. Only where it is
// not the whole disk, its journal is replayed by a mount.
type ext4 struct {
	disk string
	partition
}

// makeExt4 makes a file system in a partition, with what is in dir.
func makeExt4(ctx context.Context, disk string, p partition, dir string) error {
	_, err := run(ctx, "mkfs.ext4", "-q", "-F", "-L", p.name, "-E", "offset="+strconv.FormatInt(p.offset, 10),
		"-d", dir, disk, strconv.FormatInt(p.size>>10, 10)+"k")
	return err
}

// device is what the tools take as the device.
func (e ext4) device() string { return fmt.Sprintf("%s?offset=%d", e.disk, e.offset) }

func (e ext4) replay(ctx context.Context) error {
	if e.offset > 0 {
		// e2fsck forgets the offset when it has replayed and opens it again.
		_, err := e.mounted(ctx, "rw", "true")
		return err
	}
	_, err := run(ctx, "e2fsck", "-p", "-E", "journal_only", e.device())
	const repaired = 1
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == repaired {
		return nil
	}
	return err
}

func (e ext4) check(ctx context.Context) error {
	_, err := run(ctx, "e2fsck", "-f", "-n", e.device())
	return err
}

func (e ext4) read(ctx context.Context, path string) ([]byte, error) {
	return e.debugfs(ctx, "cat "+quote(path))
}

func (e ext4) list(ctx context.Context, dir string) ([]string, error) {
	out, err := e.debugfs(ctx, "ls -p "+quote(dir))
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		// /inode/mode/uid/gid/name/size/
		fields := strings.Split(line, "/")
		if len(fields) > 5 && fields[5] != "." && fields[5] != ".." && fields[5] != "" {
			names = append(names, fields[5])
		}
	}
	return names, nil
}

func (e ext4) readLink(ctx context.Context, path string) (string, error) {
	out, err := e.debugfs(ctx, "stat "+quote(path))
	if err != nil {
		return "", err
	}
	_, rest, fast := strings.Cut(string(out), `Fast link dest: "`)
	if target, _, ok := strings.Cut(rest, `"`); fast && ok {
		return target, nil
	}
	// A target of 60 bytes and more is in a block of its own.
	target, err := e.read(ctx, path)
	if err != nil || len(target) == 0 {
		return "", fmt.Errorf("cannot read disk %s: %s is no link (%v)", e.disk, path, err)
	}
	return string(target), nil
}

func (e ext4) mounted(ctx context.Context, mode, script string, args ...string) ([]byte, error) {
	return mounted(ctx, e.disk, e.partition, mode, script, args...)
}

// debugfs runs one request on the disk, read-only and without reading bitmaps.
func (e ext4) debugfs(ctx context.Context, request string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "debugfs", "-c", "-R", request, e.device())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if said := complaint(stderr.String()); err == nil && said != "" {
		err = errors.New(said)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read disk %s: %s: %w", e.disk, request, err)
	}
	return stdout.Bytes(), nil
}

// complaint is what debugfs, which exits with 0 in any case, said of a failure.
func complaint(stderr string) string {
	var said []string
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "debugfs 1.") && !strings.Contains(line, "catastrophic mode") {
			said = append(said, strings.TrimSpace(line))
		}
	}
	return strings.Join(said, "; ")
}

// quote makes a path one word for debugfs, which doubles quotes within.
func quote(path string) string { return `"` + strings.ReplaceAll(path, `"`, `""`) + `"` }
