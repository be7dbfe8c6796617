package ostree

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The format of POSIX ACLs in extended attributes (linux/posix_acl_xattr.h): a
// version, then entries, all little-endian.
const (
	aclVersion  = 2
	aclHeader   = 4          // bytes
	aclEntry    = 8          // bytes: tag and permissions of 16 bits, ID of 32
	aclNoID     = ^uint32(0) // in entries that name no user or group
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclGroup    = 0x08
	aclMask     = 0x10
	aclOther    = 0x20
)

var errACL = errors.New("it is no access control list that the kernel takes")

// acl is the part of a valid access control list that determines the file's mode.
type acl struct {
	permissions map[uint16]uint32 // permissions of the entries without an ID, by tag
	named       bool              // whether there are entries for named users or groups
}

// checkACL checks a POSIX ACL. An
// ACL that disagrees with the file's mode would change the mode, and the kernel drops an ACL
// that only repeats the mode. In both cases the object on disk would have another checksum.
func (x xattr) checkACL(mode uint32) error {
	kind := mode & unix.S_IFMT
	list, err := parseACL(x.value)
	switch {
	case kind == unix.S_IFLNK, kind != unix.S_IFDIR && x.name == "system.posix_acl_default":
		return fmt.Errorf("such a file cannot have it")
	case err != nil:
		return err
	case kind == unix.S_IFDIR: // a DirMeta is stored as data, not read back from the file system
		return nil
	case len(list.permissions) == 3:
		return fmt.Errorf("it says no more than the mode")
	case list.mode() != mode&0o777:
		return fmt.Errorf("it stands for the mode %#o, but the file has %#o", list.mode(), mode&0o7777)
	}
	return nil
}

// mode returns the permission bits of a file that has the list.
func (l acl) mode() uint32 {
	group, masked := l.permissions[aclMask]
	if !masked {
		group = l.permissions[aclGroupObj]
	}
	return l.permissions[aclUserObj]<<6 | group<<3 | l.permissions[aclOther]
}

// parseACL parses a list and applies the kernel's rules (posix_acl_valid in fs/posix_acl.c).
// The entries must be in this order: owner, named users, group, named groups, mask (required
// if there are named entries), others.
func parseACL(data []byte) (acl, error) {
	list := acl{permissions: map[uint16]uint32{}}
	if len(data) <= aclHeader || (len(data)-aclHeader)%aclEntry != 0 || binary.LittleEndian.Uint32(data) != aclVersion {
		return acl{}, errACL
	}
	last := uint16(0)
	for at := aclHeader; at < len(data); at += aclEntry {
		tag, permissions := binary.LittleEndian.Uint16(data[at:]), binary.LittleEndian.Uint16(data[at+2:])
		if permissions > 7 || !list.add(tag, last, uint32(permissions), binary.LittleEndian.Uint32(data[at+4:])) {
			return acl{}, errACL
		}
		last = tag
	}
	for _, tag := range []uint16{aclUserObj, aclGroupObj, aclOther} {
		if _, found := list.permissions[tag]; !found {
			return acl{}, errACL
		}
	}
	if _, masked := list.permissions[aclMask]; list.named && !masked {
		return acl{}, errACL
	}
	return list, nil
}

// add adds an entry and reports whether it is valid after an entry with the tag last: entries
// must be sorted by tag number.
func (l *acl) add(tag, last uint16, permissions, id uint32) bool {
	switch tag {
	case aclUser, aclGroup:
		l.named = true
		return tag >= last && id != aclNoID
	case aclUserObj, aclGroupObj, aclMask, aclOther:
		l.permissions[tag] = permissions
		return tag > last && id == aclNoID
	}
	return false
}

// Revisions and sizes of the attribute security.capability (linux/capability.h).
const (
	capRevisions  = 0xff000000
	capEffective  = 1
	capRevision2  = 0x02000000
	capSize2      = 20
	capRevision3  = 0x03000000 // ends with the UID of a user namespace's root
	capSize3      = 24
	capRootOffset = 20
)

// checkCapability checks the value of security.capability against the kernel's rules
// (validheader in security/commoncap.c). Revision 3 with the host's root UID is refused,
// because it reads back as revision 2.
func checkCapability(value []byte) error {
	if len(value) >= 4 {
		switch magic := binary.LittleEndian.Uint32(value) &^ capEffective; {
		case magic == capRevision2 && len(value) == capSize2:
			return nil
		case magic == capRevision3 && len(value) == capSize3:
			if root := binary.LittleEndian.Uint32(value[capRootOffset:]); root != 0 && root != ^uint32(0) {
				return nil
			}
		}
	}
	return fmt.Errorf("it is no set of capabilities that the kernel keeps")
}
