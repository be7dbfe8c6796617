package box

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"machine-pivot/test/box/inside"
	"machine-pivot/test/tools/buildcache"
	"machine-pivot/test/worlds/vm"
)

// power implements vm.Power.
func (b *Box) power(ctx context.Context, p vm.PowerOn) (reason vm.Reason, use vm.Progress, err error) {
	dir, err := os.MkdirTemp("", "box-*")
	if err != nil {
		return "", use, fmt.Errorf("cannot make a box: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "enter")
	if err := buildcache.Program(ctx, program, "machine-pivot/test/box/enter"); err != nil {
		return "", use, err
	}
	d, err := openDisk(ctx, dir, p)
	if err != nil {
		return "", use, err
	}
	r := run{box: b, PowerOn: p, dir: dir, program: program, disk: d}
	reason, err = r.boot(ctx)
	return reason, r.used, errors.Join(err, d.close(ctx))
}

// run is one boot of a box.
type run struct {
	vm.PowerOn
	box             *Box
	dir, program    string
	disk            *disk
	group           *group
	relay           *relay
	console, report *terminal
	used            vm.Progress
}

// boot runs the box until it ends, and leaves nothing behind.
func (r *run) boot(ctx context.Context) (_ vm.Reason, err error) {
	if r.group, err = newGroup(); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.group.remove()) }()
	for _, t := range []**terminal{&r.console, &r.report} {
		if *t, err = newTerminal(); err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, (*t).close()) }()
	}
	// Pdeathsig is sent when the thread that started the box ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, begin, said, err := r.start()
	if err != nil {
		return "", err
	}
	r.Running(r.group.use)
	var copying sync.WaitGroup
	copying.Go(func() { r.console.copy(r.Console) })
	copying.Go(func() { r.report.copy(r.Report) })
	entered := r.enter(ctx, cmd, begin, said)
	waited := r.wait(ctx, cmd)
	r.used = r.group.use()
	err = errors.Join(r.relay.close(), r.console.end(), r.report.end())
	copying.Wait()
	switch {
	case ctx.Err() != nil:
		return "", errors.Join(ctx.Err(), err)
	case entered != nil || err != nil:
		return "", errors.Join(entered, err)
	}
	return ended(waited)
}

// start starts what becomes the box's PID 1. It waits until begin is closed, and then writes to said why it cannot
// become systemd, if so.
func (r *run) start() (cmd *exec.Cmd, begin, said *os.File, err error) {
	config, err := json.Marshal(r.config())
	if err != nil {
		return nil, nil, nil, err
	}
	wait, begin, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("cannot start a box: %w", err)
	}
	defer wait.Close()
	said, status, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, errors.Join(fmt.Errorf("cannot start a box: %w", err), begin.Close())
	}
	defer status.Close()
	cmd = exec.Command(r.program, string(config))
	cmd.Env = environment()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.console.slave, r.console.slave, r.console.slave
	cmd.ExtraFiles = []*os.File{inside.Status - 3: status, inside.Begin - 3: wait, inside.Disk - 3: r.disk.file}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: namespaces, UseCgroupFD: true, CgroupFD: int(r.group.dir.Fd()), Setsid: true,
		// Even a killed test must not leave boxes behind.
		Pdeathsig: syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, nil, errors.Join(fmt.Errorf("cannot start a box: %w", err), begin.Close(), said.Close())
	}
	return cmd, begin, said, nil
}

// config returns what the box is told.
func (r *run) config() inside.Config {
	c := inside.Config{
		Root: r.dir, Cmdline: r.Cmdline, HostAddress: HostAddress,
		Console: r.console.slave.Name(), Report: r.report.slave.Name(),
	}
	for _, f := range r.FileSystems {
		c.FileSystems = append(c.FileSystems, inside.FileSystem{Kind: string(f.Kind), Boot: f.Boot, Offset: f.Offset, Size: f.Size})
	}
	return c
}

// enter gives the box its network, lets it begin, and waits until its PID 1 is systemd.
func (r *run) enter(ctx context.Context, cmd *exec.Cmd, begin, said *os.File) error {
	defer said.Close()
	pid := cmd.Process.Pid
	var err error
	if r.relay, err = newRelay(ctx, pid, r.box.ports); err != nil {
		return errors.Join(err, begin.Close(), cmd.Process.Kill())
	}
	if err := begin.Close(); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	text, err := io.ReadAll(said)
	if len(text) > 0 {
		err = errors.Join(err, errors.New(strings.TrimSpace(string(text))))
	}
	if err != nil {
		return fmt.Errorf("cannot enter a box: %w", err)
	}
	r.box.setPID(pid)
	return nil
}

// wait waits for the end of the box. If ctx ends first, it cuts the power.
func (r *run) wait(ctx context.Context, cmd *exec.Cmd) error {
	done := make(chan struct{})
	cutting := make(chan error, 1)
	go func() {
		select {
		case <-ctx.Done():
			cutting <- errors.Join(r.disk.cut(), cmd.Process.Kill())
		case <-done:
			cutting <- nil
		}
	}()
	err := cmd.Wait()
	r.box.setPID(0)
	close(done)
	return errors.Join(err, <-cutting)
}

// ended returns why a box ended. reboot(2) in a PID namespace ends its PID 1 by a signal (pid_namespaces(7)).
func ended(waited error) (vm.Reason, error) {
	if exit, ok := errors.AsType[*exec.ExitError](waited); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			switch status.Signal() {
			case syscall.SIGHUP:
				return vm.Rebooted, nil
			case syscall.SIGINT:
				return vm.PoweredOff, nil
			}
		}
	}
	return "", fmt.Errorf("the box's PID 1 ended by itself: %w", waited)
}
