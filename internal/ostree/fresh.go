package ostree

import (
	"errors"

	"golang.org/x/sys/unix"
)

// permissions are the mode bits that open(2) may give a new file. The set-ID and sticky bits are
// set later, because chown(2) and write(2) may clear them.
const permissions = 0o777

// fresh is what the kernel gives a new file in the staging directory. Owner and group depend on the process, the mount
// options and the directory, the mode on the umask or the directory's default access list. An object that wants nothing
// else needs no system calls for owner and mode, each of which would be a transaction of the file system.
type fresh struct {
	uid, gid uint32
	mode     uint32 // the bits that new files may have
}

// lookAtNew finds out what new files get, by creating one.
func (s *staging) lookAtNew() (fresh, error) {
	f, err := s.createNew(permissions)
	if err != nil {
		return fresh{}, err
	}
	var st unix.Stat_t
	err = unix.Fstat(f.fd, &st)
	err = errors.Join(err, unix.Unlinkat(s.fd(), f.name, 0), f.Close())
	return fresh{st.Uid, st.Gid, st.Mode & permissions}, err
}

// owns reports whether new files have this owner.
func (k fresh) owns(o owned) bool { return o.uid == k.uid && o.gid == k.gid }

// grants reports whether a file that was created with the permissions of mode has exactly that mode.
func (k fresh) grants(mode uint32) bool { return mode&0o7777&^k.mode == 0 }

// setMode sets the mode of a file that was created with the permissions of mode, unless it has it.
func (k fresh) setMode(f *stagedFile, mode uint32) error {
	if k.grants(mode) {
		return nil
	}
	return unix.Fchmod(f.fd, mode&0o7777)
}

// setOwner sets the owner of a new file, unless it has it.
func (k fresh) setOwner(f *stagedFile, o owned) error {
	if k.owns(o) {
		return nil
	}
	return unix.Fchown(f.fd, int(o.uid), int(o.gid))
}
