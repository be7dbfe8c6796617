// Package syskill kills the real program at its system calls. A seccomp filter stops pivot, and the
// real ostree that it runs, at each call that changes something; the test then lets the call
// continue or kills the program. The program needs no support for this.
package syskill

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is a system call that the filter stops at.
type call struct {
	effect string
	// flags, if not 0, restricts the call: argument flagsIn, counted from 0, must have one of them
	// set or, with exactly, be equal to flags.
	flags   uint32
	flagsIn uint32
	exactly bool
	// file is one more than the index of the argument that is a file descriptor. The call is then
	// an effect only if that is a regular file. 0: no such argument.
	file int
}

// effects returns the system calls that change disk contents or mounts, sync, or execute a program.
func effects() map[uint32]call {
	calls := map[uint32]call{}
	for number, effect := range map[uint32]string{
		unix.SYS_RENAMEAT: "rename", unix.SYS_RENAMEAT2: "rename", unix.SYS_LINKAT: "link", unix.SYS_SYMLINKAT: "symlink",
		unix.SYS_UNLINKAT: "unlink", unix.SYS_MKDIRAT: "mkdir", unix.SYS_MKNODAT: "mknod",
		unix.SYS_FCHMOD: "chmod", unix.SYS_FCHMODAT: "chmod", unix.SYS_FCHMODAT2: "chmod",
		unix.SYS_FCHOWN: "chown", unix.SYS_FCHOWNAT: "chown",
		unix.SYS_SETXATTR: "setxattr", unix.SYS_LSETXATTR: "setxattr", unix.SYS_FSETXATTR: "setxattr",
		unix.SYS_REMOVEXATTR: "setxattr", unix.SYS_LREMOVEXATTR: "setxattr", unix.SYS_FREMOVEXATTR: "setxattr",
		unix.SYS_UTIMENSAT: "utimes", unix.SYS_TRUNCATE: "write", unix.SYS_FTRUNCATE: "write", unix.SYS_FALLOCATE: "write",
		unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fsync", unix.SYS_SYNCFS: "syncfs", unix.SYS_SYNC: "sync",
		unix.SYS_MOUNT: "mount", unix.SYS_UMOUNT2: "umount", unix.SYS_EXECVE: "exec",
	} {
		calls[number] = call{effect: effect}
	}
	for number, file := range map[uint32]int{
		unix.SYS_WRITE: 0, unix.SYS_PWRITE64: 0, unix.SYS_WRITEV: 0, unix.SYS_PWRITEV: 0, unix.SYS_PWRITEV2: 0,
		unix.SYS_SENDFILE: 0, unix.SYS_COPY_FILE_RANGE: 2, unix.SYS_SPLICE: 2,
	} {
		calls[number] = call{effect: "write", file: file + 1}
	}
	calls[unix.SYS_OPENAT] = call{effect: "create", flags: creates, flagsIn: 2}
	calls[unix.SYS_IOCTL] = call{effect: "setflags", flags: unix.FS_IOC_SETFLAGS, flagsIn: 1, exactly: true}
	maps.Copy(calls, effectsWithoutDirectory())
	return calls
}

// creates is the set of flags with which open creates or truncates a file.
const creates = unix.O_CREAT | unix.O_TRUNC | unix.O_TMPFILE&^unix.O_DIRECTORY

// The BPF instructions of the filter (linux/bpf_common.h).
const (
	loadWord    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	jumpIfEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	jumpIfAny   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	returnValue = unix.BPF_RET | unix.BPF_K
)

// Offsets in struct seccomp_data (linux/seccomp.h): the call number, and the arguments, of 8 bytes
// each. In little endian, the lower half of an argument comes first.
const (
	numberAt   = 0
	argumentAt = 16
	argument   = 8
)

// filter returns the BPF program that stops at the effects.
func filter() []unix.SockFilter {
	allow := unix.SockFilter{Code: returnValue, K: unix.SECCOMP_RET_ALLOW}
	notify := unix.SockFilter{Code: returnValue, K: unix.SECCOMP_RET_USER_NOTIF}
	program := []unix.SockFilter{{Code: loadWord, K: numberAt}}
	for number, c := range effects() {
		block := []unix.SockFilter{notify}
		if c.flags != 0 {
			test := uint16(jumpIfAny)
			if c.exactly {
				test = jumpIfEqual
			}
			block = []unix.SockFilter{{Code: loadWord, K: argumentAt + argument*c.flagsIn}, {Code: test, K: c.flags, Jf: 1}, notify, allow}
		}
		program = append(program, unix.SockFilter{Code: jumpIfEqual, K: number, Jf: uint8(len(block))})
		program = append(program, block...)
	}
	return append(program, allow)
}

// install makes the calling thread and its children stop at each effect, until a reader of the listener lets them
// continue. Only a deadly signal ends a stop before (Linux 5.19 or later). Any other one, such as the Go runtime's own,
// would restart the call, and the effect would count twice.
func install() (listener int, err error) {
	program := filter()
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, uintptr(unsafe.Pointer(&p)))
	if errno != 0 {
		return 0, fmt.Errorf("cannot install a seccomp filter: %w", errno)
	}
	return int(fd), nil
}

// notification is struct seccomp_notif (linux/seccomp.h).
type notification struct {
	id         uint64
	pid, flags uint32
	call       uint32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

// changes reports whether the stopped call is an effect. Writes to terminals, pipes and sockets are
// not.
func (n notification) changes(c call) bool {
	if c.file == 0 {
		return true
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(n.args[c.file-1])))
	return err == nil && info.Mode().IsRegular()
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

// watch calls visit for each effect and lets it continue, until visit returns true or no process
// with the filter is left.
func watch(listener *os.File, visit func(effect string) (stop bool)) error {
	fd, calls := int(listener.Fd()), effects()
	for {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(polled, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if polled[0].Revents&unix.POLLIN == 0 {
			if polled[0].Revents&unix.POLLHUP != 0 {
				return nil
			}
			continue
		}
		var n notification
		switch err := ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR):
			continue // the stopped process is gone
		case err != nil:
			return err
		}
		if c := calls[n.call]; n.changes(c) && visit(c.effect) {
			return nil
		}
		r := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if err := ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
