package main

import (
	"bufio"
	"bytes"
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

// The floor of the contents alone decompresses, hashes and writes the content of each object, on
// all processors. It uses no network, parses no archive, writes only one file for each processor,
// and does not compare the hashes. Its input is the content of the legacy image in packs, one for
// each processor. A pack consists of records: the decompressed and the compressed length (8 bytes
// each, big-endian), and a deflate stream. The floor of a whole image is in fetchfloor.go.

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

// add adds the content of a .filez object.
func (p *pack) add(path string) (size int64, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	content, size, err := filezContent(data)
	if err != nil || content.Len() == 0 {
		return 0, err
	}
	record := binary.BigEndian.AppendUint64(nil, uint64(size))
	record = binary.BigEndian.AppendUint64(record, uint64(content.Len()))
	if _, err := p.out.Write(record); err != nil {
		return 0, err
	}
	if _, err := content.WriteTo(p.out); err != nil {
		return 0, err
	}
	p.size += size
	return size, nil
}

// filezContent returns the compressed content of a .filez object, and its decompressed size. The
// format: the length of a header, 4 bytes of padding, the header, which begins with the size of the
// content, and a deflate stream. A symbolic link has no content.
func filezContent(data []byte) (content *bytes.Reader, size int64, err error) {
	if len(data) < 16 || len(data) < 8+int(binary.BigEndian.Uint32(data)) {
		return nil, 0, fmt.Errorf("an object of %d bytes is no .filez", len(data))
	}
	start := 8 + int(binary.BigEndian.Uint32(data))
	return bytes.NewReader(data[start:]), int64(binary.BigEndian.Uint64(data[8:])), nil
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
	return syncDir(out)
}

// syncDir syncs the file system of a directory.
func syncDir(dir string) error {
	d, err := os.Open(dir)
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
