// Package cli has what the command lines of both programs share: commands, usage errors, output
// formats, and the exit status of a failure.
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

// Root returns the root command of a program with its commands.
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
	root.SetOut(&stdout{file: os.Stdout}) // first, because commands that cobra adds keep it
	root.SetFlagErrorFunc(wrongFlag)
	root.AddCommand(append(commands, versionCommand(name, build))...)
	root.SetHelpCommand(helpCommand())
	checkShells(root)
	setArguments(root)
	return root
}

// Group returns a command that only has subcommands. An unknown subcommand is a usage error.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: unknownCommand, RunE: help}
	cmd.AddCommand(commands...)
	return cmd
}

// Elsewhere returns hidden commands that exist in another program. Each fails with a hint to
// that program, because users of both programs confuse them.
func Elsewhere(program, purpose string, names ...string) (commands []*cobra.Command) {
	for _, name := range names {
		commands = append(commands, absent(name, func(args []string) string {
			return fmt.Sprintf("%s has it, the program %s: %s", program, purpose, strings.Join(append([]string{program, name}, args...), " "))
		}))
	}
	return commands
}

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// Run runs a program until it ends or a signal stops it, and returns its exit status. It prints an
// error to stderr.
func Run(root *cobra.Command) int {
	ctx, stop := untilSignal(context.Background())
	defer stop()
	root.SetErr(printable.Writer(os.Stderr)) // JSON and YAML go to stdout only
	cmd, err := root.ExecuteContextC(ctx)
	if out, ours := root.OutOrStdout().(*stdout); ours {
		err = out.after(err)
	}
	if err != nil {
		return report(cmd, stopped(ctx, cmd, err))
	}
	return 0
}

// untilSignal returns a context that ends with fault.Stopped on ^C, on a stop by systemd, and when
// the terminal is lost. Signals that the caller of the program ignores, as nohup does, stay ignored.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	caught := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
	go func() {
		select {
		case s := <-caught:
			cancel(fault.Stopped{Signal: s.String(), ByHand: s == os.Interrupt})
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(caught); cancel(nil) }
}

// OutliveReaders makes writes to stdout and stderr fail if nobody reads them any more, as when a
// session without a terminal is lost. Otherwise SIGPIPE would end the program. It is for work
// that must reach a safe point.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// stoppedKey is the annotation with the text of WhenStopped.
const stoppedKey = "pivot/stopped"

// WhenStopped sets what to tell the user if the command is interrupted: what state it leaves
// and how to continue. By default, nothing was changed.
func WhenStopped(cmd *cobra.Command, left string) { annotate(cmd, stoppedKey, left) }

func annotate(cmd *cobra.Command, key, value string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[key] = value
}

// stopped returns the error of an interrupted command, with what it leaves. It replaces the
// command's error, which only says where the interrupt happened.
func stopped(ctx context.Context, cmd *cobra.Command, err error) error {
	_, reported := errors.AsType[Reported](err)
	if _, status := errors.AsType[ExitStatus](err); reported || status || ctx.Err() == nil {
		return err
	}
	return fault.New(fault.Unavailable, "stopped: %w", context.Cause(ctx)).
		WithHint("%s", cmp.Or(cmd.Annotations[stoppedKey], "nothing was changed"))
}

// report prints an error, unless it was reported already, and returns its exit status.
func report(cmd *cobra.Command, err error) int {
	program := cmd.Root().Name()
	err = Permitted(err)
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

// Permitted sets the hint of permission errors if the user is not root: other hints are for root.
func Permitted(err error) error {
	if os.Geteuid() == 0 || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	kind := fault.KindOf(err)
	if kind == fault.Internal {
		kind = fault.Refused
	}
	return fault.New(kind, "%w", err).WithHint("run it as root, for example with sudo")
}

// ExitStatus is an error that ends the program with a status and prints nothing.
type ExitStatus int

// Error implements error.
func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Reported is an error that was already reported in the output of the run.
type Reported struct{ Err error }

// Error implements error.
func (r Reported) Error() string { return r.Err.Error() }

// Unwrap returns the wrapped error.
func (r Reported) Unwrap() error { return r.Err }

// AddRoot adds the flag --root.
func AddRoot(cmd *cobra.Command, root *string) {
	cmd.Flags().StringVar(root, "root", "/", "use `DIR` as the root directory of the machine")
	Directories(cmd, "root")
}

// CheckRoot returns an error if the argument of --root is not a directory.
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
