package syskill

import (
	"fmt"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"machine-pivot/test/suites/booted"
)

// listenerSocket is the descriptor over which the child passes its seccomp listener.
const listenerSocket = 3

// Child continues the process that Run starts: it enters the machine and executes the program. It
// returns only on failure.
func Child(argv []string) error {
	env, err := booted.Enter()
	if err != nil {
		return err
	}
	// The filter belongs to the thread, so exec must run on the same thread.
	runtime.LockOSThread()
	listener, err := install()
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(listenerSocket, []byte{0}, unix.UnixRights(listener), nil, 0); err != nil {
		return fmt.Errorf("cannot hand over the listener: %w", err)
	}
	unix.CloseOnExec(listenerSocket)
	program := filepath.Join(booted.ProgramsDir, "pivot")
	return syscall.Exec(program, append([]string{program}, argv...), env)
}
