package syskill

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"machine-pivot/test/suites/booted"
)

// Stop is a signal that is sent when the program begins an effect. SIGKILL ends the program and its
// children before the effect happens. After any other signal the effect continues. The zero value
// sends no signal.
type Stop struct {
	At     int // the effect, counted from 1; 0: never
	Signal syscall.Signal
}

// Result is the result of one run of the program.
type Result struct {
	Effects []string // effects begun, in order
	Killed  bool
	Status  int // the exit status, if not killed
	Output  string
}

// Run runs pivot once on a machine, as the first process of a PID namespace, and signals it as stop
// says.
func Run(world booted.World, stop Stop, argv ...string) (r Result, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return r, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	var output bytes.Buffer
	cmd, err := world.Command(argv...)
	if err != nil {
		theirs.Close()
		return r, err
	}
	cmd.ExtraFiles = []*os.File{theirs} // listenerSocket
	cmd.Stdout, cmd.Stderr = &output, &output
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return r, err
	}
	var serr error
	err = follow(ours, func(effect string) bool {
		r.Effects = append(r.Effects, effect)
		if len(r.Effects) == stop.At {
			r.Killed = stop.Signal == syscall.SIGKILL
			serr = cmd.Process.Signal(stop.Signal)
		}
		return r.Killed || serr != nil
	})
	if err = errors.Join(err, serr); err != nil {
		err = errors.Join(err, cmd.Process.Kill())
	}
	werr := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](werr); ok {
		r.Status, werr = exit.ExitCode(), nil
	}
	r.Output = output.String()
	if err = errors.Join(err, werr); err != nil {
		err = fmt.Errorf("cannot run the program: %w\n%s", err, r.Output)
	}
	return r, err
}

// follow receives the listener from the child and watches it.
func follow(socket *os.File, visit func(effect string) bool) error {
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(socket.Fd()), make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) == 0 {
		return errors.Join(errors.New("the child handed over no listener"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	listener := os.NewFile(uintptr(fds[0]), "seccomp")
	defer listener.Close()
	return watch(listener, visit)
}
