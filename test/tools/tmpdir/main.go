// Command tmpdir prints the directory for the tests' temporary files: in memory if it has
// enough space and supports what they do, otherwise the system's. The tests make thousands
// of small repositories and sync each one repeatedly, which is slow on a disk.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// memory is an in-memory file system that all Linux systems have.
const memory = "/dev/shm"

// room is how many bytes a whole test run needs, including machines and their disks.
const room = 12 << 30

func main() {
	dir := os.TempDir()
	if os.Getenv("TMPDIR") == "" && usable(memory, room) == nil {
		dir = memory
	}
	fmt.Println(dir)
}

// usable returns an error if a directory is not suitable for the tests' files. They need room, run programs there, and
// set extended attributes and the immutable flag, as ostree does.
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

// fits returns an error if an in-memory file system has less than room bytes free.
func fits(dir string, room uint64) error {
	var files unix.Statfs_t
	var memory unix.Sysinfo_t
	if err := errors.Join(unix.Statfs(dir, &files), unix.Sysinfo(&memory)); err != nil {
		return err
	}
	// Compare with total memory, because the kernel can reclaim its caches.
	if free := min(files.Bavail*uint64(files.Bsize), memory.Totalram*uint64(memory.Unit)); free < room {
		return fmt.Errorf("%s has room for %d bytes, %d are wanted", dir, free, room)
	}
	return nil
}
