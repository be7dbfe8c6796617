// Command tmpdir says where tests put their temporary files: in memory if what they
// do works there and fits, else where the system has them. The tests make thousands
// of small repositories and sync each again and again, which a disk makes slow.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// memory is a file system in memory on each Linux.
const memory = "/dev/shm"

// room is what a whole run needs, machines and their disks included.
const room = 12 << 30

func main() {
	dir := os.TempDir()
	if os.Getenv("TMPDIR") == "" && usable(memory, room) == nil {
		dir = memory
	}
	fmt.Println(dir)
}

// usable says why a directory cannot have the tests' files, if it cannot: they run
// programs there, and ostree gives files attributes and the immutable flag.
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

// fits says how much room a file system in memory lacks.
func fits(dir string, room uint64) error {
	var files unix.Statfs_t
	var memory unix.Sysinfo_t
	if err := errors.Join(unix.Statfs(dir, &files), unix.Sysinfo(&memory)); err != nil {
		return err
	}
	// What the kernel caches is not free, but can be had: total memory is the measure.
	if free := min(files.Bavail*uint64(files.Bsize), memory.Totalram*uint64(memory.Unit)); free < room {
		return fmt.Errorf("%s has room for %d bytes, %d are wanted", dir, free, room)
	}
	return nil
}
