package main

import (
	"io"
	"os"
	"syscall"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/sirupsen/logrus"

	"machine-pivot/internal/status"
)

// newLog logs for people to w and with fields to the journal, where there is
// one. In a unit, whose stderr is the journal already, the lines for people go
// to the console instead, so that the journal has each one once.
func newLog(w io.Writer) *logrus.Logger {
	if !journal.Enabled() {
		return plainLog(w)
	}
	if isJournal, err := journal.StderrIsJournalStream(); err == nil && isJournal {
		w = console{}
	}
	return withLibrary(status.NewLog(w, journal.Send))
}

// plainLog logs for people to w.
func plainLog(w io.Writer) *logrus.Logger { return withLibrary(status.NewLog(w, nil)) }

// withLibrary is a log with what the image library has to say in it. The library uses the
// process's own logger, which nobody else does here: so that one writes nothing itself and
// hands on each entry. The last log that asks gets them.
func withLibrary(log *logrus.Logger) *logrus.Logger {
	global := logrus.StandardLogger()
	global.SetOutput(io.Discard)
	hooks := logrus.LevelHooks{}
	hooks.Add(handOn{log})
	global.ReplaceHooks(hooks)
	return log
}

// handOn gives the entries of a logger to another one.
type handOn struct{ to *logrus.Logger }

// Levels implements logrus.Hook.
func (handOn) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (h handOn) Fire(e *logrus.Entry) error {
	h.to.WithFields(e.Data).Log(max(e.Level, logrus.ErrorLevel), e.Message)
	return nil
}

// console writes to /dev/console, which it opens each time: it may be taken
// from whoever has it open (vhangup).
type console struct{}

// Write implements io.Writer. A machine without a console loses nothing.
func (console) Write(p []byte) (int, error) {
	tty, err := os.OpenFile("/dev/console", os.O_WRONLY|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return len(p), nil
	}
	defer tty.Close()
	_, _ = tty.Write(p)
	return len(p), nil
}
