package rpmostree

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cavaliergopher/cpio"
)

// rpm is a package file in RPM 4 format: lead, signature, header, and a payload compressed with
// gzip.
type rpm struct {
	pkg     dbPackage
	payload io.Reader
	file    io.Closer
}

// The header tags that are used here (rpm: include/rpm/rpmtag.h).
const (
	tagName    = 1000
	tagVersion = 1001
	tagRelease = 1002
	tagArch    = 1022
)

func openRPM(path string) (_ *rpm, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
		}
	}()
	if _, err := io.CopyN(io.Discard, file, 96); err != nil { // the lead
		return nil, err
	}
	_, size, err := readHeader(file)
	if err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, file, (8-size%8)%8); err != nil { // the signature is padded
		return nil, err
	}
	tags, _, err := readHeader(file)
	if err != nil {
		return nil, err
	}
	plain, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	p := dbPackage{Name: tags[tagName], NEVRA: fmt.Sprintf("%s-%s-%s.%s", tags[tagName], tags[tagVersion], tags[tagRelease], tags[tagArch])}
	return &rpm{pkg: p, payload: plain, file: file}, nil
}

// readHeader reads a header and returns its strings by tag, and its size in bytes.
func readHeader(r io.Reader) (tags map[uint32]string, size int64, err error) {
	var intro struct {
		Magic, Reserved uint32
		Entries, Bytes  uint32
	}
	if err := binary.Read(r, binary.BigEndian, &intro); err != nil {
		return nil, 0, err
	}
	if intro.Magic != 0x8eade801 || intro.Entries > 1<<16 || intro.Bytes > 1<<28 {
		return nil, 0, errors.New("it is no RPM package")
	}
	index := make([]struct{ Tag, Type, Offset, Count uint32 }, intro.Entries)
	store := make([]byte, intro.Bytes)
	if err := binary.Read(r, binary.BigEndian, index); err != nil {
		return nil, 0, err
	}
	if _, err := io.ReadFull(r, store); err != nil {
		return nil, 0, err
	}
	tags = map[uint32]string{}
	for _, e := range index {
		if e.Type == 6 && e.Offset < intro.Bytes { // a zero-terminated string
			text, _, _ := bytes.Cut(store[e.Offset:], []byte{0})
			tags[e.Tag] = string(text)
		}
	}
	return tags, 16 + 16*int64(intro.Entries) + int64(intro.Bytes), nil
}

// unpack writes the package's files below dir and adds them to pkg.Files.
func (r *rpm) unpack(dir string) error {
	in := cpio.NewReader(r.payload)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Clean("/" + header.Name)
		path := filepath.Join(dir, name)
		if header.Mode.IsDir() {
			err = os.MkdirAll(path, 0o755)
		} else {
			r.pkg.Files = append(r.pkg.Files, name)
			err = writeFile(path, os.FileMode(header.Mode.Perm()), in)
		}
		if err != nil {
			return err
		}
	}
}

func writeFile(path string, mode os.FileMode, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil { // do not write through a hard link into the repository
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
