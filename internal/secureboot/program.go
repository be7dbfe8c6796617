package secureboot

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// maxTable is the most that is read of a program's signatures, and of a section, in bytes. Signatures have a few kB each.
const maxTable = 1 << 20

// program is an EFI program (a PE file) as far as it says whether it may start.
type program struct {
	file       *io.SectionReader
	sha256     []byte // Authenticode's hashes, which leave the signatures out
	sha1       []byte
	sections   []section
	names      int64    // where the names of sections are that have more than 8 bytes
	signatures [][]byte // PKCS #7
}

type section struct {
	name            string
	virtual         uint32 // size in memory
	offset, content uint32 // where it is in the file, and its size there
}

// errFormat is shim's answer to each file that it cannot read (read_header and generate_hash).
var errFormat = errors.New("it is not an EFI program")

// header has the fields of a PE file's headers that matter here.
type header struct {
	checksum, directory int64 // where the checksum is, and the entry that leads to the signatures
	size                int64 // of all headers
	table               int64 // where the signatures are, and their size
	tableSize           int64
	sectionsAt, names   int64
	sections            int
}

// open reads a program, and hashes it as shim does.
func open(r io.ReaderAt, size int64) (program, error) {
	p := program{file: io.NewSectionReader(r, 0, size)}
	h, err := p.readHeader()
	if err != nil {
		return p, err
	}
	if p.sections, err = p.readSections(h); err != nil {
		return p, err
	}
	p.names = h.names
	if err := p.hash(h); err != nil {
		return p, err
	}
	p.signatures, err = p.readSignatures(h)
	return p, err
}

func (p *program) bytes(at, size int64) ([]byte, error) {
	if size < 0 || size > maxTable {
		return nil, errFormat
	}
	text := make([]byte, size)
	if n, err := p.file.ReadAt(text, at); int64(n) < size {
		return nil, formatOr(err)
	}
	return text, nil
}

// formatOr returns errFormat for the end of the file, and other errors as they are.
func formatOr(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errFormat
	}
	return err
}

func (p *program) readHeader() (h header, err error) {
	dos, err := p.bytes(0, 64)
	if err != nil || string(dos[:2]) != "MZ" {
		return h, cmp.Or(err, errFormat)
	}
	at := int64(binary.LittleEndian.Uint32(dos[60:]))
	const (
		coff     = 4 + 20 // the mark and the header of the file
		optional = 112 + 5*8
	)
	head, err := p.bytes(at, coff+optional)
	if err != nil || string(head[:4]) != "PE\x00\x00" {
		return h, cmp.Or(err, errFormat)
	}
	number := func(offset int) int64 { return int64(binary.LittleEndian.Uint32(head[offset:])) }
	short := func(offset int) int { return int(binary.LittleEndian.Uint16(head[offset:])) }
	directories := coff + 96 // of 32-bit programs
	if short(coff) == 0x20b {
		directories = coff + 112
	}
	const security = 4 // the entry of the signatures
	if number(directories-4) <= security {
		return h, errFormat
	}
	entry := directories + 8*security
	return header{
		checksum: at + coff + 64, directory: at + int64(entry), size: number(coff + 60),
		table: number(entry), tableSize: number(entry + 4),
		sectionsAt: at + coff + int64(short(20)), sections: short(6),
		names: number(12) + number(16)*18, // behind the symbols
	}, nil
}

// readSections returns the sections by their places in the file. Together they are no larger than it.
func (p *program) readSections(h header) (all []section, err error) {
	const entry = 40
	table, err := p.bytes(h.sectionsAt, int64(h.sections)*entry)
	if err != nil {
		return nil, err
	}
	sum := h.size
	for row := range slices.Chunk(table, entry) {
		s := section{
			name: string(bytes.TrimRight(row[:8], "\x00")), virtual: binary.LittleEndian.Uint32(row[8:]),
			content: binary.LittleEndian.Uint32(row[16:]), offset: binary.LittleEndian.Uint32(row[20:]),
		}
		all = append(all, s)
		if sum += int64(s.content); sum > p.file.Size() {
			return nil, errFormat
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].offset < all[j].offset })
	return all, nil
}

// hash hashes all but the checksum, the signatures and the entry that leads to these. What is behind the sections counts,
// too; without signatures it is filled up to a multiple of 8 bytes.
func (p *program) hash(h header) error {
	long, short := sha256.New(), sha1.New()
	both := io.MultiWriter(long, short)
	hashed := func(from, to int64) error {
		if from > to {
			return errFormat
		}
		_, err := io.CopyN(both, io.NewSectionReader(p.file, from, to-from), to-from)
		return formatOr(err)
	}
	end := h.size
	err := cmp.Or(hashed(0, h.checksum), hashed(h.checksum+4, h.directory), hashed(h.directory+8, h.size))
	for _, s := range p.sections {
		if err == nil {
			err = hashed(int64(s.offset), int64(s.offset)+int64(s.content))
		}
		end += int64(s.content)
	}
	if rest := p.file.Size() - h.tableSize; err == nil && p.file.Size() > end {
		if h.tableSize > 0 && rest != h.table {
			return errFormat
		}
		err = hashed(end, rest)
		if h.tableSize == 0 {
			both.Write(make([]byte, -rest&7))
		}
	}
	p.sha256, p.sha1 = long.Sum(nil), short.Sum(nil)
	return err
}

// readSignatures returns the signatures of the one type that is used for programs.
func (p *program) readSignatures(h header) (all [][]byte, err error) {
	table, err := p.bytes(h.table, h.tableSize)
	for err == nil && len(table) > 0 {
		const head, signedData = 8, 2
		if len(table) < head {
			return nil, errFormat
		}
		size := int(binary.LittleEndian.Uint32(table))
		if size < head || size > len(table) {
			return nil, errFormat
		}
		if binary.LittleEndian.Uint16(table[6:]) == signedData {
			all = append(all, table[head:size])
		}
		table = table[min((size+7)&^7, len(table)):]
	}
	return all, err
}

// section returns the content of a section; nil if the program has none of the name.
func (p *program) section(name string) ([]byte, error) {
	i := slices.IndexFunc(p.sections, func(s section) bool { return s.name == name || p.hasName(s, name) })
	if i < 0 {
		return nil, nil
	}
	s := p.sections[i]
	return p.bytes(int64(s.offset), int64(min(s.content, s.virtual)))
}

// hasName reports whether a section has a name that is elsewhere in the file.
func (p *program) hasName(s section, name string) bool {
	at, isLong := strings.CutPrefix(s.name, "/")
	offset, err := strconv.ParseUint(at, 10, 32)
	if !isLong || err != nil {
		return false
	}
	text, err := p.bytes(p.names+int64(offset), int64(len(name)+1))
	return err == nil && string(text) == name+"\x00"
}
