package vm

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// run runs a program; its error holds the end of what it printed.
func run(ctx context.Context, argv ...string) ([]byte, error) {
	return output(exec.CommandContext(ctx, argv[0], argv[1:]...))
}

// runPrivate runs a program that mounts. It gets a mount namespace of its own:
// whenever it ends or is killed, nothing stays mounted in a directory that is
// then removed. A cancelled ctx kills it with its children.
func runPrivate(ctx context.Context, argv ...string) error {
	_, err := outputPrivate(ctx, argv...)
	return err
}

// outputPrivate is runPrivate for a program whose output matters.
func outputPrivate(ctx context.Context, argv ...string) ([]byte, error) {
	return output(private(exec.CommandContext(ctx, argv[0], argv[1:]...)))
}

// private gives a program a mount namespace of its own.
func private(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// For children that left the process group and hold its output open.
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// maxSaid bounds how much of a failed program's output goes into an error.
const maxSaid = 2000

func output(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(stdout.String() + stderr.String())
		name := filepath.Base(cmd.Args[0]) + " " + strings.Join(cmd.Args[1:min(len(cmd.Args), 4)], " ")
		return nil, fmt.Errorf("cannot run %s: %w: %s", name, err, said[max(0, len(said)-maxSaid):])
	}
	return stdout.Bytes(), nil
}
