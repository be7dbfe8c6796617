// Package tool is what the main functions of the tools have in common.
package tool

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Run runs a tool's command with the program's arguments and returns the exit status. A signal that asks the
// program to end ends the context. An error is printed with the tool's name; that help was asked for is none.
func Run(name string, command func(ctx context.Context, args []string, stdout, stderr io.Writer) error) (status int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: error: %v\n", name, err)
		return 1
	}
	return 0
}
