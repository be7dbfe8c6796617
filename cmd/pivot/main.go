// Command pivot completes the first boot of an image-based Linux host: it moves
// the machine to the OS image, kernel arguments and CPU pinning that its
// encapsulated MachineConfig names, in one transaction with one reboot.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"machine-pivot/fault"
	"machine-pivot/printable"
)

// version is stamped by the build.
var version = "0-unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := rootCommand(version)
	root.SetErr(printable.Writer(os.Stderr)) // documents for programs go to stdout only
	if err := root.ExecuteContext(ctx); err != nil {
		os.Exit(report(err))
	}
}

// report tells a person what failed, unless that is told already, and returns
// the exit status that stands for it.
func report(err error) int {
	err = permitted(err)
	if status, ok := errors.AsType[exitStatus](err); ok {
		return int(status)
	}
	if _, ok := errors.AsType[reported](err); !ok {
		fmt.Fprintln(os.Stderr, "pivot: error:", printable.Text(err.Error()))
		if hint := fault.HintOf(err); hint != "" {
			fmt.Fprintln(os.Stderr, "pivot: hint:", printable.Text(hint))
		}
	}
	return fault.KindOf(err).ExitStatus()
}

// permitted explains what was not permitted to whom is not root.
func permitted(err error) error {
	if os.Geteuid() == 0 || !errors.Is(err, fs.ErrPermission) || fault.HintOf(err) != "" {
		return err
	}
	kind := fault.KindOf(err)
	if kind == fault.Internal {
		kind = fault.Refused
	}
	return fault.New(kind, "%w", err).WithHint("run it as root")
}

// exitStatus ends the program with a status that is no failure to explain.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// reported is an error that the run's own account has told already.
type reported struct{ error }

func (r reported) Unwrap() error { return r.error }
