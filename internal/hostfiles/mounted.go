package hostfiles

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

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
	data, err := os.ReadFile("/proc/thread-self/mountinfo") // the process may have threads in other namespaces
	if err != nil {
		return false, err
	}
	users := false // the last mount there is the one on top
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if where, byUser := parseMount(lines.Text()); where == path.Join(dir, name) {
			users = byUser
		}
	}
	return users, nil
}

// parseMount returns where something is mounted, and whether a user has mounted it, given a line of
// mountinfo (proc_pid_mountinfo(5)). Only FUSE lets users mount; its option user_id is the user's.
func parseMount(line string) (where string, byUser bool) {
	before, after, _ := strings.Cut(line, " - ")
	fields, types := strings.Fields(before), strings.Fields(after)
	if len(fields) < 5 || len(types) < 3 {
		return "", false
	}
	where = fields[4]
	for _, char := range []string{" ", "\t", "\n", "\\"} {
		where = strings.ReplaceAll(where, fmt.Sprintf("\\%03o", char[0]), char)
	}
	if types[0] != "fuse" && types[0] != "fuseblk" && !strings.HasPrefix(types[0], "fuse.") {
		return where, false
	}
	for option := range strings.SplitSeq(types[2], ",") {
		if id, found := strings.CutPrefix(option, "user_id="); found {
			user, err := strconv.Atoi(id)
			return where, err != nil || user != 0
		}
	}
	return where, false
}
