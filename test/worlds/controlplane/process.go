package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a program of the cluster that runs. It does not outlive the test, even if that is killed.
type Process struct {
	name  string
	log   string // the file with its output
	cmd   *exec.Cmd
	ended chan struct{}
}

// start starts a component. Its output is appended to the file log.
func start(name, log string, argv ...string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	p := Process{name: name, log: log, cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// Pdeathsig is sent when the thread that started the process ends: this one waits for it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- errors.Join(err, out.Close())
		if err == nil {
			_ = p.cmd.Wait() // killed, or the log says why
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	return &p, nil
}

// Kill ends the process and waits for its end. What a component has answered to a client is already
// stored, and a polite end takes an API server several seconds.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// running reports whether the process has not ended.
func (p *Process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// tail returns the last lines of the output.
func (p *Process) tail() string {
	const most = 4000
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	if len(text) > most {
		text = text[len(text)-most:]
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	return string(text)
}
