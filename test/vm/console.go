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

// console takes the bytes of the serial line apart into lines.
type console struct {
	log      io.Writer
	onLine   func(string)
	stopWhen func(string) bool
	start    time.Time
	told     atomic.Pointer[told] // read while lines are written
	blocked  []string             // tasks that the kernel has reported so
	partial  []byte
	lines    []SerialLine
}

// over is the error of a machine that shall live no longer, with the line of its
// console, or the limit, that says so.
type over struct {
	reason Reason
	line   string
}

func (o over) Error() string { return fmt.Sprintf("the guest %s: %s", o.reason, o.line) }

// controls are terminal control sequences: systemd's colours, and how a kernel
// or a shell clears a line.
var controls = regexp.MustCompile(`\x1b(\[[0-9;:<=>?!]*[ -/]*[@-~]|[@-Z\\^_c])|\r`)

// fatal are the signs of a guest that waits for a person or is dead.
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

// Write implements io.Writer. Its error is of type over.
func (c *console) Write(p []byte) (int, error) {
	c.partial = append(c.partial, p...)
	for {
		line, rest, found := bytes.Cut(c.partial, []byte("\n"))
		if !found {
			return len(p), nil
		}
		c.partial = rest
		if err := c.line(string(line)); err != nil {
			return len(p), err
		}
	}
}

// end takes what came after the last line feed.
func (c *console) end() {
	if len(c.partial) > 0 {
		_ = c.line(string(c.partial)) // the machine has ended already
		c.partial = nil
	}
}

func (c *console) line(text string) error {
	l := SerialLine{At: time.Since(c.start), Text: controls.ReplaceAllString(text, "")}
	c.lines = append(c.lines, l)
	said := c.said().after(l.Text)
	c.told.Store(&said)
	if c.log != nil {
		fmt.Fprintln(c.log, l)
	}
	if c.onLine != nil {
		c.onLine(l.Text)
	}
	for _, sign := range fatal {
		if strings.Contains(l.Text, sign.text) {
			return over{sign.reason, l.Text}
		}
	}
	if c.blockedTwice(l.Text) {
		return over{Hung, l.Text}
	}
	if c.stopWhen != nil && c.stopWhen(l.Text) {
		return over{Stopped, l.Text}
	}
	return nil
}

// said is what the lines so far come to.
func (c *console) said() told {
	if t := c.told.Load(); t != nil {
		return *t
	}
	return told{}
}

// text is lines as they are shown.
func text(lines []SerialLine) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}
