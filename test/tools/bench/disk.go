package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// blockSize is the unit of stat(2)'s st_blocks and the sector size of block devices, in bytes.
const blockSize = 512

// sizes is the total size of the regular files below a directory.
type sizes struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	Disk  int64 `json:"disk_bytes"` // allocated blocks
}

func (s sizes) minus(other sizes) sizes {
	return sizes{s.Files - other.Files, s.Bytes - other.Bytes, s.Disk - other.Disk}
}

// sizesOf returns the sizes below a directory. A missing directory is empty.
func sizesOf(dir string) (s sizes, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if path == dir && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return &fs.PathError{Op: "lstat", Path: path, Err: err}
		}
		s.Files++
		s.Bytes += st.Size
		s.Disk += st.Blocks * blockSize
		return nil
	})
	return s, err
}

func syncAll() { unix.Sync() }

// dropCaches drops the page cache, dentries and inodes.
func dropCaches() error {
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
}

// sectorsWritten is the index of the number of sectors written in a block device's stat file
// (Documentation/admin-guide/iostats.rst).
const sectorsWritten = 6

// deviceWritten returns the number of bytes written so far to the block device of a directory, or 0
// if the kernel does not report it.
func deviceWritten(dir string) int64 {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0
	}
	data, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) <= sectorsWritten {
		return 0
	}
	sectors, err := strconv.ParseInt(fields[sectorsWritten], 10, 64)
	if err != nil {
		return 0
	}
	return sectors * blockSize
}
