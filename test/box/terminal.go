package box

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a pseudoterminal: what a box has as its console or its second serial port.
type terminal struct {
	master, slave *os.File
	ended         atomic.Bool
}

func newTerminal() (*terminal, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make a terminal: %w", err)
	}
	t := &terminal{master: master}
	var n int
	if err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err == nil {
		n, err = unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	}
	if err == nil {
		t.slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		err = t.raw()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot make a terminal: %w", err), t.close())
	}
	return t, nil
}

// raw makes the terminal pass on what is written unchanged and without an echo, with the size of a serial console's
// screen.
func (t *terminal) raw() error {
	fd := int(t.slave.Fd())
	settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	settings.Iflag, settings.Oflag, settings.Lflag = 0, 0, 0
	return errors.Join(
		unix.IoctlSetTermios(fd, unix.TCSETS, settings),
		unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
}

// hangupInterval is how long copy waits after a vhangup(2) in the box, until somebody opens the terminal again.
const hangupInterval = 10 * time.Millisecond

// copy copies what is written to the terminal, until nobody has it open after end.
func (t *terminal) copy(to io.Writer) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := t.master.Read(buffer)
		if n > 0 {
			_, _ = to.Write(buffer[:n]) // a console that fails ends the boot itself
		}
		switch {
		case err == nil:
		case t.ended.Load():
			return
		default:
			time.Sleep(hangupInterval)
		}
	}
}

// end says that the box has ended: copy returns after the last output.
func (t *terminal) end() error {
	t.ended.Store(true)
	slave := t.slave
	t.slave = nil
	return slave.Close()
}

func (t *terminal) close() error {
	err := t.master.Close()
	if t.slave != nil {
		err = errors.Join(err, t.slave.Close())
	}
	return err
}
