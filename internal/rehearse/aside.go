package rehearse

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"machine-pivot/internal/hostfiles"
)

// Aside is work that another process of this program does, as the first one of namespaces of its own.
type Aside struct {
	Role    string // its first argument, which is no command
	Session bool   // it has a session of its own, so that no terminal interrupts it
}

// Start starts self, which is this program, has it do what a request says, and returns what it writes. With an
// *exec.ExitError, complaint is why it failed. Other errors are those of starting it, and the cause of the context's end.
func (a Aside) Start(ctx context.Context, self string, request any) (out []byte, complaint string, err error) {
	text, err := json.Marshal(request)
	if err != nil {
		return nil, "", err
	}
	var complaints bytes.Buffer
	cmd := exec.CommandContext(ctx, self, a.Role)
	cmd.Args[0] = "pivot" // for those who list processes
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &complaints
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     a.Session,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL, // when this thread ends; with the first process of the namespace, all in it end
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err = cmd.Output()
	if ctx.Err() != nil {
		return nil, "", context.Cause(ctx)
	}
	return out, complaints.String(), err
}

// Inside is the other side of Start: it reads the request, works in a mount namespace of its own, and returns the exit status.
// inside is false if the arguments of this program do not say so.
func (a Aside) Inside(args []string, request any, complaints io.Writer, work func() error) (status int, inside bool) {
	if len(args) != 2 || args[1] != a.Role || os.Getpid() != 1 {
		return 0, false
	}
	err := json.NewDecoder(os.Stdin).Decode(request)
	if err == nil {
		runtime.LockOSThread() // never unlocked: the mount namespace is this thread's
		err = hostfiles.EnterNamespace()
	}
	if err == nil {
		err = work()
	}
	if err != nil {
		fmt.Fprintln(complaints, err)
		return 1, true
	}
	return 0, true
}
