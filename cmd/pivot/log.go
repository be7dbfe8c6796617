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
		return status.NewLog(w, nil)
	}
	if isJournal, err := journal.StderrIsJournalStream(); err == nil && isJournal {
		w = console{}
	}
	return status.NewLog(w, journal.Send)
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
