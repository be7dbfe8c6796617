// Command rpm-ostree is the stand-in for rpm-ostree as a program, for a test machine's /usr/bin.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"machine-pivot/test/worlds/rpmostree"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	s := rpmostree.Standin{
		Root:   "/",
		Ostree: run,
		Reboot: func(ctx context.Context) error { _, err := run(ctx, "systemctl", "reboot"); return err },
	}
	status, err := s.Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, rpmostree.ErrDied):
		// As if another process had killed it: without an exit status.
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		status = 1
	}
	os.Exit(status)
}

func run(ctx context.Context, argv ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("%s: %w: %s", argv[0], err, exit.Stderr)
	}
	return out, err
}
