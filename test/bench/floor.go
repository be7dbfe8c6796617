package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"machine-pivot/internal/inflate"
)

// The floor is what no import can do without: each object's content is
// decompressed, hashed and written, on all processors. It has no network, no
// archive, no files but one for each processor, and nothing to compare a hash
// with. Its input are packs, one for each processor: records of two lengths (8
// bytes each, big-endian), decompressed and compressed, and a deflate stream,
// those of the legacy image.

const bufferSize = 256 << 10 // bytes

// makePacks makes packs of an archive repository's contents and returns how many
// bytes they have when decompressed.
func makePacks(repo, dir string) (content int64, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return 0, err
	}
	packs := make([]pack, runtime.NumCPU())
	for n := range packs {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("pack-%d", n)))
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		packs[n].out = f
	}
	err = filepath.WalkDir(filepath.Join(repo, "objects"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".filez") {
			return err
		}
		smallest := &packs[0]
		for n := range packs {
			if packs[n].size < smallest.size {
				smallest = &packs[n]
			}
		}
		size, err := smallest.add(path)
		content += size
		return err
	})
	return content, err
}

// pack is a pack that is being made.
type pack struct {
	out  io.Writer
	size int64 // decompressed
}

// add adds the content of a .filez object: a length, 4 bytes of nothing, a header
// of that length which begins with the size of the content, a deflate stream.
func (p *pack) add(path string) (size int64, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	start := 8 + int(binary.BigEndian.Uint32(data))
	size = int64(binary.BigEndian.Uint64(data[8:]))
	if len(data) == start {
		return 0, nil // a symbolic link
	}
	record := binary.BigEndian.AppendUint64(data[8:16:16], uint64(len(data)-start))
	if _, err := p.out.Write(append(record, data[start:]...)); err != nil {
		return 0, err
	}
	p.size += size
	return size, nil
}

// floor does the work on each pack of a directory at the same time.
func floor(dir, out string) error {
	packs, err := filepath.Glob(filepath.Join(dir, "pack-*"))
	if err != nil {
		return err
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	var group errgroup.Group
	for _, path := range packs {
		group.Go(func() error { return unpack(path, filepath.Join(out, filepath.Base(path))) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	d, err := os.Open(out)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}

// unpack decompresses and hashes the records of a pack and writes them one after
// the other.
func unpack(path, out string) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	records, to := bufio.NewReaderSize(in, bufferSize), bufio.NewWriterSize(f, bufferSize)
	record := &io.LimitedReader{R: records}
	sum, decoder := sha256.New(), inflate.New()
	for {
		var lengths [16]byte
		if _, err := io.ReadFull(records, lengths[:]); err == io.EOF {
			return to.Flush()
		} else if err != nil {
			return err
		}
		record.N = int64(binary.BigEndian.Uint64(lengths[8:]))
		sum.Reset()
		if err := decoder.Decode(io.MultiWriter(sum, to), record, binary.BigEndian.Uint64(lengths[:])); err != nil {
			return err
		}
		sum.Sum(nil)
	}
}
