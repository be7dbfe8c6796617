package vm

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

// console splits the output of the serial port into lines and watches them.
type console struct {
	log       io.Writer
	onLine    func(string)
	stopWhen  func(string) bool
	types     func(string) string
	keyboard  io.Writer // of types
	pastPanic bool
	measure   func(string) bool
	usage     func() Usage // the machine's usage until now
	start     time.Time
	latest    atomic.Pointer[consoleState] // read while lines are written
	blocked   []string                     // tasks that the kernel has reported as blocked
	partial   []byte
	lines     []SerialLine
}

// endError is the reason to end a machine, with the console line or the limit that caused it.
type endError struct {
	reason Reason
	line   string
}

func (o endError) Error() string { return fmt.Sprintf("the guest %s: %s", o.reason, o.line) }

// controls matches terminal control sequences, such as systemd's colours and those that clear a
// line, and carriage returns.
var controls = regexp.MustCompile(`\x1b(\[[0-9;:<=>?!]*[ -/]*[@-~]|[@-Z\\^_c])|\r`)

// fatal are the texts that show that a guest waits for an operator or has crashed.
var fatal = []struct {
	text   string
	reason Reason
}{
	{"Kernel panic - not syncing", Panicked},
	{"You are in emergency mode", Emergency},
	{"Entering emergency mode", Emergency},
	{"Reached target emergency.target", Emergency},
	{"Reached target Emergency Mode", Emergency},
	{"Cannot open access to console", Emergency},
}

// Write implements io.Writer. Its errors are of type endError.
func (c *console) Write(p []byte) (int, error) {
	c.partial = append(c.partial, p...)
	for {
		line, rest, found := bytes.Cut(c.partial, []byte("\n"))
		if !found {
			return len(p), c.operate(string(c.partial))
		}
		c.partial = rest
		if err := c.line(string(line)); err != nil {
			return len(p), err
		}
	}
}

// end handles output after the last line feed as a line.
func (c *console) end() {
	if len(c.partial) > 0 {
		_ = c.line(string(c.partial)) // the machine has ended already
		c.partial = nil
	}
}

func (c *console) line(text string) error {
	l := SerialLine{At: time.Since(c.start), Text: controls.ReplaceAllString(text, "")}
	if c.measure != nil && c.measure(l.Text) {
		use := c.usage()
		l.Usage = &use
	}
	c.lines = append(c.lines, l)
	state := c.state().after(l.Text)
	c.latest.Store(&state)
	if c.log != nil {
		fmt.Fprintln(c.log, l)
	}
	if c.onLine != nil {
		c.onLine(l.Text)
	}
	for _, sign := range fatal {
		if strings.Contains(l.Text, sign.text) && !c.awaited(sign.reason) {
			return endError{sign.reason, l.Text}
		}
	}
	if c.blockedTwice(l.Text) {
		return endError{Hung, l.Text}
	}
	if c.stopWhen != nil && c.stopWhen(l.Text) {
		return endError{Stopped, l.Text}
	}
	return nil
}

// awaited reports whether the caller wants to see what follows, although a guest left alone would stay
// like that forever.
func (c *console) awaited(reason Reason) bool {
	return reason == Emergency && c.types != nil || reason == Panicked && c.pastPanic
}

// operate types what the operator types after a text.
func (c *console) operate(text string) error {
	if c.types == nil {
		return nil
	}
	if _, err := io.WriteString(c.keyboard, c.types(controls.ReplaceAllString(text, ""))); err != nil {
		return fmt.Errorf("cannot type: %w", err)
	}
	return nil
}

// state returns the state after the lines so far.
func (c *console) state() consoleState {
	if t := c.latest.Load(); t != nil {
		return *t
	}
	return consoleState{}
}

// text formats lines for logs and errors.
func text(lines []SerialLine) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}
