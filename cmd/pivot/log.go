package main

import (
	"io"
	"os"
	"syscall"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/sirupsen/logrus"

	"machine-pivot/internal/status"
)

// newLog returns a log for people to w that is also written, with fields, to the journal, if there is one. In a unit,
// stderr is the journal. Lines for people are on the console instead, so that the journal has each one only once.
func newLog(w io.Writer) *logrus.Logger {
	if !journal.Enabled() {
		return plainLog(w)
	}
	if isJournal, err := journal.StderrIsJournalStream(); err == nil && isJournal {
		w = console{}
	}
	return withLibrary(status.NewLog(w, journal.Send))
}

// plainLog returns a log for people to w.
func plainLog(w io.Writer) *logrus.Logger { return withLibrary(status.NewLog(w, nil)) }

// withLibrary returns log after redirecting the image library's messages to it. The library
// uses logrus's standard logger, which nothing else in this program does: it writes nothing
// itself and forwards each entry. The last log that was passed gets them.
func withLibrary(log *logrus.Logger) *logrus.Logger {
	global := logrus.StandardLogger()
	global.SetOutput(io.Discard)
	hooks := logrus.LevelHooks{}
	hooks.Add(forwarder{log})
	global.ReplaceHooks(hooks)
	return log
}

// forwarder is a logrus hook that forwards entries to another logger.
type forwarder struct{ to *logrus.Logger }

// Levels implements logrus.Hook.
func (forwarder) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (h forwarder) Fire(e *logrus.Entry) error {
	h.to.WithFields(e.Data).Log(max(e.Level, logrus.ErrorLevel), e.Message)
	return nil
}

// console writes to /dev/console. It opens it for each write, because vhangup(2) may revoke an
// open one.
type console struct{}

// Write implements io.Writer. It ignores errors, because a machine may have no console.
func (console) Write(p []byte) (int, error) {
	tty, err := os.OpenFile("/dev/console", os.O_WRONLY|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return len(p), nil
	}
	defer tty.Close()
	_, _ = tty.Write(p)
	return len(p), nil
}
