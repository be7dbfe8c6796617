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

// run runs a program and returns its standard output. The error contains the end of the output.
func run(ctx context.Context, argv ...string) ([]byte, error) {
	return output(exec.CommandContext(ctx, argv[0], argv[1:]...))
}

// runPrivate runs a program that mounts file systems, in a new mount namespace: however the
// program ends, nothing stays mounted in a directory that is then removed. Cancelling ctx kills
// the program and its children.
func runPrivate(ctx context.Context, argv ...string) error {
	_, err := outputPrivate(ctx, argv...)
	return err
}

// outputPrivate is like runPrivate and returns the program's standard output.
func outputPrivate(ctx context.Context, argv ...string) ([]byte, error) {
	return output(private(exec.CommandContext(ctx, argv[0], argv[1:]...)))
}

// private makes a program start in a new mount namespace.
func private(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// For children that left the process group and keep the output open.
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// maxOutput is how many bytes of a failed program's output an error contains.
const maxOutput = 2000

func output(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		out := strings.TrimSpace(stdout.String() + stderr.String())
		name := filepath.Base(cmd.Args[0]) + " " + strings.Join(cmd.Args[1:min(len(cmd.Args), 4)], " ")
		return nil, fmt.Errorf("cannot run %s: %w: %s", name, err, out[max(0, len(out)-maxOutput):])
	}
	return stdout.Bytes(), nil
}
