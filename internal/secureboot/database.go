package secureboot

import (
	"bytes"
	"crypto/x509"
	"encoding/binary"
	"slices"
)

// The types of signature lists that count, as the bytes of their GUIDs (UEFI specification, 32.4.1).
const (
	sha256List    = "\x26\x16\xc4\xc1\x4c\x50\x92\x40\xac\xa9\x41\xf9\x36\x93\x43\x28"
	sha1List      = "\x12\xa5\x6c\x82\x10\xcf\xc9\x4a\xb1\x87\xbe\x01\x49\x66\x31\xbd"
	x509List      = "\xa1\x59\xc0\xa5\xe4\x94\xa7\x4a\x87\xb5\xab\x15\x5c\x2b\xf0\x72"
	x509Sha256    = "\x92\xa4\xd2\x3b\xc0\x96\x79\x40\xb4\x20\xfc\xf9\x8e\xf1\x03\xed"
	moduleSigning = "1.3.6.1.4.1.2312.16.1.2" // the usage of certificates that shim takes for kernel modules only
)

// database is what signature lists name: programs by their hashes, and signers by their certificates.
type database struct {
	hashes  [][]byte // of programs, SHA-256 and SHA-1
	certs   []*x509.Certificate
	revoked [][]byte // certificates by their SHA-256 hashes, each with the time of the revocation; only the firmware reads these
	unread  int      // certificates that cannot be parsed here, but perhaps there
}

// readDatabase reads signature lists up to the first that is damaged, as shim does. Of several certificates in one list,
// shim sees the first.
func readDatabase(lists []byte, shim bool) (d database) {
	const head, owner = 28, 16
	for len(lists) >= head {
		size, extra, each := binary.LittleEndian.Uint32(lists[16:]), binary.LittleEndian.Uint32(lists[20:]), binary.LittleEndian.Uint32(lists[24:])
		if size < head || uint64(size) > uint64(len(lists)) || uint64(extra) > uint64(size-head) || each <= owner {
			break
		}
		kind := string(lists[:owner])
		for i, entry := range slices.Collect(slices.Chunk(lists[head+extra:size], int(each))) {
			if len(entry) == int(each) && (i == 0 || kind != x509List || !shim) {
				d.add(kind, entry[owner:], shim)
			}
		}
		lists = lists[size:]
	}
	return d
}

func (d *database) add(kind string, entry []byte, shim bool) {
	switch kind {
	case sha256List, sha1List:
		d.hashes = append(d.hashes, entry)
	case x509Sha256:
		if !shim {
			d.revoked = append(d.revoked, entry)
		}
	case x509List:
		d.addCert(entry, shim)
	}
}

func (d *database) addCert(der []byte, shim bool) {
	if len(der) < 4 || der[0] != 0x30 || der[1] != 0x82 || int(binary.BigEndian.Uint16(der[2:])) != len(der)-4 {
		return // nor do shim and the firmware take it for a certificate
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		d.unread++
		return
	}
	for _, usage := range cert.UnknownExtKeyUsage {
		if shim && usage.String() == moduleSigning {
			return
		}
	}
	d.certs = append(d.certs, cert)
}

// names reports whether the hash of a program is in the database.
func (d database) names(p program) bool {
	return slices.ContainsFunc(d.hashes, func(h []byte) bool { return bytes.Equal(h, p.sha256) || bytes.Equal(h, p.sha1) })
}
