// Command tmpdir prints the directory for the tests' temporary files: in memory if that is large
// enough and supports what the tests do, else the system's default. The tests create and sync
// thousands of small repositories, which is slow on a disk.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// memory is a tmpfs on every Linux.
const memory = "/dev/shm"

// room is the space for a whole test run, including virtual machines and their disks, in bytes.
const room = 12 << 30

func main() {
	dir := os.TempDir()
	if os.Getenv("TMPDIR") == "" && usable(memory, room) == nil {
		dir = memory
	}
	fmt.Println(dir)
}

// usable returns an error if the directory is not suitable: the tests execute programs there, and
// ostree sets extended attributes and the immutable flag.
func usable(dir string, room uint64) (err error) {
	probe, err := os.MkdirTemp(dir, "probe-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(probe)) }()
	program := filepath.Join(probe, "program")
	return errors.Join(
		fits(dir, room),
		os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755),
		exec.Command(program).Run(),
		unix.Setxattr(probe, "user.probe", []byte("x"), 0),
		exec.Command("chattr", "+i", probe).Run(),
		exec.Command("chattr", "-i", probe).Run())
}

// fits returns an error if a file system in memory is too small.
func fits(dir string, room uint64) error {
	var files unix.Statfs_t
	var memory unix.Sysinfo_t
	if err := errors.Join(unix.Statfs(dir, &files), unix.Sysinfo(&memory)); err != nil {
		return err
	}
	// Cached memory is not free but reclaimable, so use the total memory.
	if free := min(files.Bavail*uint64(files.Bsize), memory.Totalram*uint64(memory.Unit)); free < room {
		return fmt.Errorf("%s has room for %d bytes, %d are wanted", dir, free, room)
	}
	return nil
}
