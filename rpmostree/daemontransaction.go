package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// transactionGrace is how long a cancelled transaction may take to end. The daemon cannot interrupt each of
// its steps.
const transactionGrace = 30 * time.Second

const transactionInterface = busName + ".Transaction"

// followTransaction starts the transaction at the other end of conn, and returns its result. If another client
// has requested the same, the daemon lets both follow one transaction.
func followTransaction(ctx context.Context, conn *dbus.Conn, show func(string)) error {
	signals := make(chan *dbus.Signal, 64)
	conn.Signal(signals)
	daemon := conn.Object(busName, "/") // without a bus the name has no meaning, but must be valid
	started := daemon.Go(transactionInterface+".Start", 0, make(chan *dbus.Call, 1)).Done
	progress := transactionProgress{show: show}
	end, over := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case call := <-started:
			if call.Err != nil {
				return callFailed("start rpm-ostree's transaction", call.Err)
			}
			started = nil
		case signal, open := <-signals:
			if !open {
				return errLost
			}
			if finished, err := progress.take(signal); finished {
				return errors.Join(ctx.Err(), err)
			}
		case <-end:
			daemon.Go(transactionInterface+".Cancel", 0, make(chan *dbus.Call, 1))
			end, over = nil, time.After(transactionGrace)
		case <-over:
			return fmt.Errorf("%w, and the transaction of rpm-ostree continues", ctx.Err())
		}
	}
}

// failedError is the error of a transaction that the daemon has carried out, and that has failed.
type failedError struct {
	Message string // of the daemon
}

func (e *failedError) Error() string { return "rpm-ostree: " + e.Message }

// transactionProgress shows how far a transaction is.
type transactionProgress struct {
	show func(line string)
	last string
}

// take takes a signal of the transaction: its result, or a line to show.
func (p *transactionProgress) take(signal *dbus.Signal) (finished bool, err error) {
	switch strings.TrimPrefix(signal.Name, transactionInterface+".") {
	case "Finished":
		var success bool
		var message string
		if err := dbus.Store(signal.Body, &success, &message); err != nil {
			return true, fmt.Errorf("cannot read the result of rpm-ostree's transaction: %w", err)
		}
		if !success {
			err = &failedError{message}
		}
		return true, err
	case "Message", "TaskBegin", "PercentProgress":
		p.line(signal)
	}
	return false, nil
}

// line shows a signal's text. A counted step, such as "Importing packages (3/7)", is shown once.
func (p *transactionProgress) line(signal *dbus.Signal) {
	if len(signal.Body) == 0 {
		return
	}
	text, _ := signal.Body[0].(string)
	if strings.HasSuffix(signal.Name, ".PercentProgress") {
		text, _, _ = strings.Cut(text, " (")
	}
	if text = strings.TrimSpace(text); text != "" && text != p.last {
		p.last = text
		p.show(text)
	}
}
