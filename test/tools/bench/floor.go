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

// The floor is the work that no import can avoid: it decompresses, hashes and writes the content of
// each object, on all processors. It uses no network, parses no archive, writes only one file for
// each processor, and does not compare the hashes. Its input is the content of the legacy image in
// packs, one for each processor. A pack consists of records: the decompressed and the compressed
// length (8 bytes each, big-endian), and a deflate stream.

const bufferSize = 256 << 10 // bytes

// makePacks writes packs with the contents of an archive repository. It returns their total
// decompressed size in bytes.
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

// pack is a pack that is being written.
type pack struct {
	out  io.Writer
	size int64 // total decompressed size
}

// add adds the content of a .filez object. Its format: the length of a header, 4 bytes of padding,
// the header, which begins with the size of the content, and a deflate stream.
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

// floor processes all packs of a directory concurrently.
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

// unpack decompresses and hashes the records of a pack and writes their contents to one file.
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
