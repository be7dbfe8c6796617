package efi

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
)

// Types of signature lists, as the bytes of their GUIDs.
const (
	SHA256 = "\x26\x16\xc4\xc1\x4c\x50\x92\x40\xac\xa9\x41\xf9\x36\x93\x43\x28"
	X509   = "\xa1\x59\xc0\xa5\xe4\x94\xa7\x4a\x87\xb5\xab\x15\x5c\x2b\xf0\x72"
)

// List returns a signature list of entries of one size.
func List(kind string, entries ...[]byte) []byte {
	list := append([]byte(kind), make([]byte, 12)...)
	for _, e := range entries {
		list = append(list, "owned by a test.."[:16]...)
		list = append(list, e...)
	}
	binary.LittleEndian.PutUint32(list[16:], uint32(len(list)))
	binary.LittleEndian.PutUint32(list[24:], uint32(16+len(entries[0])))
	return list
}

// Certs returns signature lists of the certificates of keys, one each.
func Certs(keys ...*Key) (lists []byte) {
	for _, k := range keys {
		lists = append(lists, List(X509, k.Cert.Raw)...)
	}
	return lists
}

// Vendor returns the content of a shim's section .vendor_cert that names a key.
func Vendor(k *Key) []byte {
	const head = 16
	table := make([]byte, head)
	binary.LittleEndian.PutUint32(table, uint32(len(k.Cert.Raw)))
	binary.LittleEndian.PutUint32(table[8:], head)
	binary.LittleEndian.PutUint32(table[12:], uint32(head+len(k.Cert.Raw)))
	return append(table, k.Cert.Raw...)
}

// Names of variables, with their owners.
const (
	SecureBoot = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	SetupMode  = "SetupMode-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	DB         = "db-d719b2cb-3d3a-4596-a3bc-dad00e67656f"
	DBX        = "dbx-d719b2cb-3d3a-4596-a3bc-dad00e67656f"
	LoaderInfo = "LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
	shim       = "-605dab50-e046-4300-abb6-3dd810dd8b23"
	MokList    = "MokListRT" + shim
	MokList1   = "MokListRT1" + shim
	MokListX   = "MokListXRT" + shim
	Insecure   = "MokSBStateRT" + shim
	IgnoreDB   = "MokIgnoreDB" + shim
	Level      = "SbatLevelRT" + shim
)

// Variables writes variables as the kernel shows them, below the root of a machine.
func Variables(root string, values map[string][]byte) error {
	dir := filepath.Join(root, "sys/firmware/efi/efivars")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, value := range values {
		if err := os.WriteFile(filepath.Join(dir, name), slices.Concat([]byte{6, 0, 0, 0}, value), 0o644); err != nil {
			return err
		}
	}
	return nil
}
