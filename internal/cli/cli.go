// Package cli is what the command lines of both programs have in common: commands and
// what a wrong use of them is, how a result is printed, and how a failure becomes an
// exit status.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/printable"
)

// Root makes a program of its commands.
func Root(name string, build Build, short string, commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:           name,
		Short:         short,
		Version:       build.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          unknownCommand,
		RunE:          help,
	}
	root.SetFlagErrorFunc(wrongFlag)
	root.AddCommand(append(commands, versionCommand(name, build))...)
	completeArguments(root)
	return root
}

// Group is a command that only holds others; a wrong name below it is a usage error.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: unknownCommand, RunE: help}
	cmd.AddCommand(commands...)
	return cmd
}

// Elsewhere are commands of another program, for each of which this one says so. What
// was one program is two, and who works with both confuses them.
func Elsewhere(program, purpose string, names ...string) (commands []*cobra.Command) {
	for _, name := range names {
		commands = append(commands, &cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(cmd *cobra.Command, args []string) error {
				return fault.New(fault.Usage, "%s has no command %s", cmd.Root().Name(), name).
					WithHint("%s has it, the program %s: %s", program, purpose, strings.Join(append([]string{program, name}, args...), " "))
			},
		})
	}
	return commands
}

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// Run runs a program until it ends or is told to, by SIGINT or SIGTERM, and returns
// its exit status. A failure is told on stderr.
func Run(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root.SetErr(printable.Writer(os.Stderr)) // documents for programs go to stdout only
	if cmd, err := root.ExecuteContextC(ctx); err != nil {
		return report(cmd, stopped(ctx, cmd, err))
	}
	return 0
}

// stoppedKey is the annotation of a command that says what it leaves when it is stopped.
const stoppedKey = "pivot/stopped"

// WhenStopped sets what a command leaves when it is stopped, and how to go on. Without
// it a command changes nothing.
func WhenStopped(cmd *cobra.Command, left string) { annotate(cmd, stoppedKey, left) }

func annotate(cmd *cobra.Command, key, value string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[key] = value
}

// stopped is the failure of a command that was told to stop, with what it leaves. How far
// it was does not matter to who stopped it.
func stopped(ctx context.Context, cmd *cobra.Command, err error) error {
	_, told := errors.AsType[Reported](err)
	if _, status := errors.AsType[ExitStatus](err); told || status || ctx.Err() == nil {
		return err
	}
	return fault.New(fault.Unavailable, "stopped: %w", context.Cause(ctx)).
		WithHint("%s", cmp.Or(cmd.Annotations[stoppedKey], "nothing was changed"))
}

// report tells a person what failed, unless that is told already, and returns
// the exit status that stands for it.
func report(cmd *cobra.Command, err error) int {
	program := cmd.Root().Name()
	err = permitted(err)
	if status, ok := errors.AsType[ExitStatus](err); ok {
		return int(status)
	}
	if _, ok := errors.AsType[Reported](err); !ok {
		fmt.Fprintln(os.Stderr, program+": error:", printable.Text(err.Error()))
		hint := fault.HintOf(err)
		if hint == "" && fault.KindOf(err) == fault.Usage {
			hint = "see " + cmd.CommandPath() + " --help"
		}
		if hint != "" {
			fmt.Fprintln(os.Stderr, program+": hint:", printable.Text(hint))
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

// ExitStatus ends the program with a status that is no failure to explain.
type ExitStatus int

// Error implements error.
func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Reported is an error that the run's own account has told already.
type Reported struct{ Err error }

// Error implements error.
func (r Reported) Error() string { return r.Err.Error() }

// Unwrap is the error itself.
func (r Reported) Unwrap() error { return r.Err }

// CheckRoot refuses a --root that is no directory: nothing is there to be told of.
func CheckRoot(root string) error {
	info, err := os.Stat(root)
	if err == nil && !info.IsDir() {
		err = errors.New("it is no directory")
	}
	if err != nil {
		return fault.New(fault.Usage, "cannot use --root=%s: %w", root, err).
			WithHint("name the root directory of a machine; without the flag it is /")
	}
	return nil
}
