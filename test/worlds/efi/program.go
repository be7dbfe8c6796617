// Package efi makes what UEFI firmware with Secure Boot sees: programs, keys, signatures, and the variables that name those
// who may sign. It is written from the specifications (PE, Authenticode, UEFI), with a file in memory, and shares nothing
// with the package that judges.
package efi

import (
	"bytes"
	"crypto/sha256"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Offsets in the programs that Program makes, and in others by their own header.
const (
	headers   = 0x400
	peHeader  = 0x40
	optional  = peHeader + 24
	security  = optional + 112 + 4*8
	sectionAt = optional + 240
)

// Section is a section of a program.
type Section struct {
	Name    string
	Content string
}

// Program returns an unsigned 64-bit program of some sections, which runs nowhere. Names of more than 8 bytes are in a table, as a
// linker puts them.
func Program(sections ...Section) []byte {
	file, names := make([]byte, headers), make([]byte, 4)
	copy(file, "MZ")
	put32(file, 60, peHeader)
	copy(file[peHeader:], "PE\x00\x00\x64\x86")
	binary.LittleEndian.PutUint16(file[peHeader+6:], uint16(len(sections)))
	binary.LittleEndian.PutUint16(file[peHeader+20:], 240)
	binary.LittleEndian.PutUint16(file[optional:], 0x20b)
	put32(file, optional+60, headers)
	put32(file, optional+64, 0x1234) // the checksum, which no hash covers
	put32(file, optional+108, 16)
	for i, s := range sections {
		at := sectionAt + i*40
		copy(file[at:], s.Name)
		if len(s.Name) > 8 {
			copy(file[at:at+8], fmt.Sprintf("/%d\x00\x00\x00\x00\x00\x00", len(names)))
			names = append(names, s.Name+"\x00"...)
		}
		put32(file, at+8, len(s.Content))
		put32(file, at+16, len(padded([]byte(s.Content))))
		put32(file, at+20, len(file))
		file = append(file, padded([]byte(s.Content))...)
	}
	put32(names, 0, len(names))
	put32(file, peHeader+12, len(file)) // no symbols, and then the names
	return append(file, padded(names)...)
}

func put32(file []byte, at, value int) { binary.LittleEndian.PutUint32(file[at:], uint32(value)) }

func padded(content []byte) []byte {
	return append(slices.Clone(content), make([]byte, -len(content)&7)...)
}

// entry returns where a program's header names its signatures.
func entry(program []byte) int {
	at := int(binary.LittleEndian.Uint32(program[60:])) + 24
	if binary.LittleEndian.Uint16(program[at:]) == 0x20b {
		return at + 112 + 4*8
	}
	return at + 96 + 4*8
}

// Unsigned returns a program without its signatures.
func Unsigned(program []byte) []byte {
	at := entry(program)
	if table := binary.LittleEndian.Uint32(program[at:]); table > 0 {
		program = program[:table]
	}
	program = slices.Clone(program)
	clear(program[at : at+8])
	return program
}

// VendorOf returns the certificate that a shim has of its vendor.
func VendorOf(shim []byte) ([]byte, error) {
	section, err := vendorSection(shim)
	if err != nil {
		return nil, err
	}
	table := shim[section.Offset : section.Offset+section.VirtualSize]
	from := binary.LittleEndian.Uint32(table[8:])
	return table[from : from+binary.LittleEndian.Uint32(table)], nil
}

func vendorSection(shim []byte) (*pe.Section, error) {
	file, err := pe.NewFile(bytes.NewReader(shim))
	if err != nil {
		return nil, err
	}
	section := file.Section(".vendor_cert")
	if section == nil {
		return nil, errors.New("it is no shim")
	}
	return section, nil
}

// WithVendor returns an unsigned shim that trusts a key instead of its vendor's.
func WithVendor(shim []byte, k *Key) ([]byte, error) {
	shim = Unsigned(shim)
	section, err := vendorSection(shim)
	if err != nil {
		return nil, err
	}
	table := Vendor(k)
	if int(section.VirtualSize) < len(table) {
		return nil, errors.New("there is no room for a vendor's certificate")
	}
	copy(shim[section.Offset:], table)
	return shim, nil
}

// Hash returns the hash of a program by which lists name it. The file's sections must follow each other without gaps.
func Hash(program []byte) []byte {
	program = padded(Unsigned(program))
	at := entry(program)
	checksum := int(binary.LittleEndian.Uint32(program[60:])) + 24 + 64
	hash := sha256.Sum256(slices.Concat(program[:checksum], program[checksum+4:at], program[at+8:]))
	return hash[:]
}

// attach adds a signature to those of a program.
func attach(program, signature []byte) []byte {
	program = padded(program)
	at := entry(program)
	table, size := binary.LittleEndian.Uint32(program[at:]), binary.LittleEndian.Uint32(program[at+4:])
	if size == 0 {
		table = uint32(len(program))
	}
	head := make([]byte, 8)
	put32(head, 0, 8+len(signature))
	copy(head[4:], "\x00\x02\x02\x00") // revision, and PKCS #7
	block := padded(slices.Concat(head, signature))
	program = append(program, block...)
	put32(program, at, int(table))
	put32(program, at+4, int(size)+len(block))
	return program
}
