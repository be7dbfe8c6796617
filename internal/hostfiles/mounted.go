package hostfiles

import (
	"errors"
	"os"
	"path"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// A user can mount a file system with fusermount(1), over an own directory. It is served by the
// user's own program: what root reads there fails, and with the option allow_other it can hang. So
// such a mount is not entered. It cannot be moved aside, and is gone at the next boot.

// ErrMounted is the error if a user has mounted a file system on the way to an entry, or over it.
var ErrMounted = errors.New("a file system that a user has mounted, which is not entered")

// asMounted returns ErrMounted for the errors with which such a file system refuses root.
func asMounted(err error) error {
	if os.Geteuid() == 0 && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTCONN)) {
		return ErrMounted
	}
	return err
}

// openat opens an entry of the directory without effects, unless a user has mounted something there.
func (d *Dir) openat(name string, flags int) (fd int, err error) {
	flags |= unix.O_PATH | unix.O_CLOEXEC
	at := int(d.file.Fd())
	fd, err = unix.Openat2(at, name, &unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_NO_XDEV})
	if errors.Is(err, unix.EXDEV) {
		switch users, merr := d.mountedByUser(name); {
		case merr != nil:
			return -1, merr
		case users:
			return -1, ErrMounted
		}
	}
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOSYS) { // ENOSYS: before Linux 5.6
		fd, err = unix.Openat(at, name, flags, 0)
	}
	return fd, err
}

// mounted reports whether a user has mounted something over an entry of the directory.
func (d *Dir) mounted(base string) bool {
	entry, err := d.hold(base)
	if err == nil {
		entry.Close()
	}
	return errors.Is(err, ErrMounted)
}

// mountedByUser reports whether the directory's entry has a mount that a user has made.
func (d *Dir) mountedByUser(name string) (bool, error) {
	dir, err := os.Readlink(pathOf(int(d.file.Fd())))
	if err != nil {
		return false, err
	}
	entry := path.Join(dir, name)
	there, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != entry, false })
	return len(there) > 0 && byUser(there[len(there)-1]), err // the last mount there is the one on top
}

// byUser reports whether a user has made a mount. Only FUSE lets users mount; its option user_id is
// the user's.
func byUser(mount *mountinfo.Info) bool {
	if mount.FSType != "fuse" && mount.FSType != "fuseblk" && !strings.HasPrefix(mount.FSType, "fuse.") {
		return false
	}
	for option := range strings.SplitSeq(mount.VFSOptions, ",") {
		if id, found := strings.CutPrefix(option, "user_id="); found {
			return id != "0"
		}
	}
	return false
}
