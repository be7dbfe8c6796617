package main

import (
	"cmp"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"machine-pivot/internal/cli"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// progressFlags are the flags that decide who sees a command's progress.
type progressFlags struct {
	quietFlag
	to descriptor
}

// quietFlag is the flag -q.
type quietFlag struct{ quiet bool }

func (f *quietFlag) add(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "show only the result, warnings and errors, and no progress")
}

// hushed returns a log, quiet if the flag is set.
func (f *quietFlag) hushed(log *logrus.Logger) *logrus.Logger {
	if f.quiet {
		status.Quiet(log)
	}
	return log
}

func (f *progressFlags) add(cmd *cobra.Command) {
	cmd.Flags().Var(&f.to, "progress-fd", "write progress to the open file descriptor `N`, one JSON document per line")
	cli.Suggest(cmd, "progress-fd")
}

// logTo returns the log of a command, and a function that shows its progress to
// people and, with --progress-fd, to a program.
func (f *progressFlags) logTo(w io.Writer) (*logrus.Logger, pivot.Emit) {
	var screen *status.Screen
	if !f.quiet && cli.Width(os.Stderr) > 0 {
		screen = &status.Screen{W: os.Stderr, Width: func() int { return cmp.Or(cli.Width(os.Stderr), cli.UnknownWidth) }}
	}
	if screen != nil {
		w = screen
	}
	log := f.hushed(newLog(w))
	display := &status.Display{Screen: screen, Log: log, Now: time.Now}
	if f.to == 0 {
		return log, display.Emit
	}
	stream := &status.Stream{W: f.to.open(), Now: time.Now, Lost: func(err error) {
		log.WithError(err).Warn("nobody reads the progress any more")
	}}
	return log, status.Tee(display.Emit, stream.Emit)
}

// descriptor is a flag for a file descriptor that the program inherited; 0 until it is set.
type descriptor int

// String implements pflag.Value.
func (d *descriptor) String() string {
	if *d == 0 {
		return ""
	}
	return strconv.Itoa(int(*d))
}

// Type implements pflag.Value.
func (*descriptor) Type() string { return "fd" }

// Set implements pflag.Value.
func (d *descriptor) Set(text string) error {
	fd, err := strconv.Atoi(text)
	if err != nil || fd <= 0 {
		return errors.New("it is the number of a file descriptor, as 3")
	}
	mode, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return errors.New("it is not open")
	}
	if mode&unix.O_ACCMODE == unix.O_RDONLY {
		return errors.New("it is not open for writing")
	}
	*d = descriptor(fd)
	return nil
}

// writeTimeout limits how long a reader of the progress may block the program.
const writeTimeout = 5 * time.Second

// open returns a writer for the descriptor. The descriptor is not inherited by child processes,
// so that the reader sees end-of-file when this program ends.
func (d *descriptor) open() io.Writer {
	fd := int(*d)
	unix.CloseOnExec(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err == nil {
		switch stat.Mode & unix.S_IFMT {
		case unix.S_IFIFO, unix.S_IFSOCK:
			_ = unix.SetNonblock(fd, true) // without it, there are no deadlines
		}
	}
	return &deadlineWriter{os.NewFile(uintptr(fd), "progress")}
}

// deadlineWriter is a file with a timeout for writes.
type deadlineWriter struct{ file *os.File }

// Write implements io.Writer.
func (f *deadlineWriter) Write(p []byte) (int, error) {
	_ = f.file.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails for regular files, which need no deadline
	return f.file.Write(p)
}
