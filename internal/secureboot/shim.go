package secureboot

import (
	"encoding/binary"
	"errors"
	"io"
)

// WithShim returns who judges if a shim is installed that is not the running one; nil if nobody does. A *Refusal says that
// it would not be started. Keys that the machine's owner has enrolled do not count: the running shim's own is among them.
func (f Firmware) WithShim(r io.ReaderAt, size int64) (*Judge, error) {
	j, err := f.Judge()
	if err != nil || j == nil {
		return nil, err
	}
	firmware, level := &Judge{}, j.level
	firmware.add(f, true)
	if err := firmware.Check(r, size); err != nil {
		return nil, err
	}
	p, err := open(r, size)
	if err != nil {
		return nil, err
	}
	next := &Judge{shim: true, level: level}
	if err := next.checkLevel(p); err != nil {
		return nil, err
	}
	if next.allowed, next.denied, err = p.vendor(); err != nil {
		return nil, err
	}
	next.add(f, true)
	return next, nil
}

// vendor returns what a shim itself allows and denies (cert.S): one certificate, or signature lists.
func (p *program) vendor() (allowed, denied database, err error) {
	table, err := p.section(".vendor_cert")
	if err != nil || len(table) < 16 {
		return allowed, denied, errors.Join(err, errors.New("it is no shim: it has no certificate of its vendor"))
	}
	part := func(i int) []byte {
		size, at := uint64(binary.LittleEndian.Uint32(table[4*i:])), uint64(binary.LittleEndian.Uint32(table[8+4*i:]))
		if at+size > uint64(len(table)) {
			return nil
		}
		return table[at : at+size]
	}
	allowed, denied = readDatabase(part(0), true), readDatabase(part(1), true)
	allowed.addCert(part(0), true)
	return allowed, denied, nil
}
