package syskill

import (
	"fmt"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"machine-pivot/test/booted"
)

// Listener is the descriptor on which a child hands over its filter's listener.
const listenerSocket = 3

// Child is the rest of the process that Run starts: it enters the machine's world
// and becomes the program. It only returns if it could not.
func Child(argv []string) error {
	env, err := booted.Enter()
	if err != nil {
		return err
	}
	// The filter is the thread's, and exec goes with the thread.
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
