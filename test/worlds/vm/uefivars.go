package vm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"unicode/utf16"
)

// Owners of the firmware's variables, as the bytes of their GUIDs.
const (
	shimOwner     = "\x50\xab\x5d\x60\x46\xe0\x00\x43\xab\xb6\x3d\xd8\x10\xdd\x8b\x23"
	databaseOwner = "\xcb\xb2\x19\xd7\x3a\x3d\x96\x45\xa3\xbc\xda\xd0\x0e\x67\x65\x6f"
)

// Trust is what a machine's firmware trusts besides Microsoft's keys, which only somebody at its console could change.
type Trust struct {
	Off     bool   // Secure Boot is off
	Owner   []byte // signature lists of the machine's owner, for shim (MokList)
	Allowed []byte // signature lists to add to db
	Denied  []byte // signature lists to add to dbx
}

// apply changes a file of OVMF's variables.
func (t Trust) apply(vars []byte) ([]byte, error) {
	store, err := openStore(bytes.Clone(vars))
	if err != nil {
		return nil, err
	}
	if t.Off {
		at, ok := store.live["SecureBootEnable"]
		if !ok {
			return nil, errors.New("there is no switch of Secure Boot")
		}
		store.value(at)[0] = 0
	}
	if len(t.Owner) > 0 {
		store.add("MokList", shimOwner, 3, make([]byte, 16), t.Owner)
	}
	for name, more := range map[string][]byte{"db": t.Allowed, "dbx": t.Denied} {
		if at, ok := store.live[name]; ok && len(more) > 0 {
			store.file[at+2] &= 0xfd // deleted
			store.add(name, databaseOwner, 0x27, store.file[at+16:at+32], append(bytes.Clone(store.value(at)), more...))
		}
	}
	return store.file, nil
}

// store has the authenticated variables of a firmware volume (EDK II, VariableFormat.h).
type store struct {
	file []byte
	live map[string]int // where each is
	end  int            // of the used space
}

const variableHeader = 60

func openStore(file []byte) (s store, err error) {
	s = store{file: file, live: map[string]int{}, end: int(binary.LittleEndian.Uint16(file[48:])) + 28}
	for binary.LittleEndian.Uint16(file[s.end:]) == 0x55aa {
		const added = 0x3f
		if name := file[s.end+variableHeader : s.end+variableHeader+s.number(s.end, 36)]; file[s.end+2] == added {
			s.live[string(bytes.ReplaceAll(name, []byte{0}, nil))] = s.end
		}
		s.end = (s.end + variableHeader + s.number(s.end, 36) + s.number(s.end, 40) + 3) &^ 3
	}
	if len(s.live) == 0 {
		err = errors.New("these are not the variables of a firmware")
	}
	return s, err
}

func (s *store) number(at, offset int) int {
	return int(binary.LittleEndian.Uint32(s.file[at+offset:]))
}

func (s *store) value(at int) []byte {
	from := at + variableHeader + s.number(at, 36)
	return s.file[from : from+s.number(at, 40)]
}

func (s *store) add(name, owner string, attributes uint32, time, value []byte) {
	head := []byte{0xaa, 0x55, 0x3f, 0}
	head = binary.LittleEndian.AppendUint32(head, attributes)
	head = append(append(head, make([]byte, 8)...), time...)
	text := utf16.Encode([]rune(name + "\x00"))
	head = binary.LittleEndian.AppendUint32(head, 0)
	head = binary.LittleEndian.AppendUint32(head, uint32(2*len(text)))
	head = binary.LittleEndian.AppendUint32(head, uint32(len(value)))
	head = append(head, owner...)
	for _, c := range text {
		head = binary.LittleEndian.AppendUint16(head, c)
	}
	copy(s.file[s.end:], append(head, value...))
	s.end = (s.end + len(head) + len(value) + 3) &^ 3
}
