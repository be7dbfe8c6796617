// Package syskill kills the real program at its system calls: a seccomp filter
// stops pivot, and the real ostree that it runs, at each call that changes
// something, and the test decides whether it goes on or dies there. The program
// knows nothing of it.
package syskill

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// effects are the system calls that change what is on disk or mounted, make it
// durable, or start a program.
func effects() map[uint32]string {
	calls := map[uint32]string{
		unix.SYS_RENAMEAT: "rename", unix.SYS_RENAMEAT2: "rename", unix.SYS_LINKAT: "link", unix.SYS_SYMLINKAT: "symlink",
		unix.SYS_UNLINKAT: "unlink", unix.SYS_MKDIRAT: "mkdir",
		unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fsync", unix.SYS_SYNCFS: "syncfs", unix.SYS_SYNC: "sync",
		unix.SYS_MOUNT: "mount", unix.SYS_UMOUNT2: "umount", unix.SYS_EXECVE: "exec",
	}
	maps.Copy(calls, effectsWithoutDirectory())
	return calls
}

// BPF's instructions that the filter is made of (linux/bpf_common.h).
const (
	loadWord    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	jumpIfEqual = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	returnValue = unix.BPF_RET | unix.BPF_K
)

// install makes the calling thread, and what it becomes and starts, stop at the
// effects. Who reads the returned descriptor lets them go on.
func install() (listener int, err error) {
	calls := effects()
	n := uint8(len(calls))
	program := []unix.SockFilter{{Code: loadWord, K: 0}} // the number of the call
	for number := range calls {
		n--
		program = append(program, unix.SockFilter{Code: jumpIfEqual, K: number, Jt: n + 1})
	}
	program = append(program,
		unix.SockFilter{Code: returnValue, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: returnValue, K: unix.SECCOMP_RET_USER_NOTIF})
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&p)))
	if errno != 0 {
		return 0, fmt.Errorf("cannot install a seccomp filter: %w", errno)
	}
	return int(fd), nil
}

// notification is struct seccomp_notif of linux/seccomp.h.
type notification struct {
	id         uint64
	pid, flags uint32
	call       uint32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

// watch tells visit of each effect and lets it go on, until visit says stop or
// no process is left that the filter is on.
func watch(listener *os.File, visit func(effect string) (stop bool)) error {
	fd, names := int(listener.Fd()), effects()
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
			continue // whoever stopped there is gone
		case err != nil:
			return err
		}
		if visit(names[n.call]) {
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
