package vm

import (
	"regexp"
	"slices"
)

// kernelPrefix matches the beginning of a line that the kernel itself writes: the time and, usually,
// the part of the kernel. Without it, other lines that quote such a message, such as the kernel
// command line, would match.
const kernelPrefix = `^\[ *\d+\.\d{6}\] (\w[\w ]*: )?`

// stall matches the first line of a kernel report that a processor or RCU makes no progress. The
// stall can be over a moment later: a guest that gets no processor from a busy host for a while
// reports the same.
var stall = regexp.MustCompile(kernelPrefix + `(BUG: soft lockup - CPU#\d+ stuck|INFO: rcu_\w+ (self-detected stall|detected (expedited )?stalls) on CPU|` +
	`Watchdog detected hard LOCKUP|BUG: workqueue lockup)`)

// blocked matches the first line of a kernel report that a task has waited for a lock or a disk for
// too long. The second submatch is the task, as NAME:PID.
var blocked = regexp.MustCompile(kernelPrefix + `INFO: task (\S.*:\d+) blocked .*for more than \d+ seconds`)

// kernelLine matches a line that the kernel itself writes: it begins with the time.
var kernelLine = regexp.MustCompile(`^\[ *\d+\.\d{6}\]`)

// consoleState summarizes the lines of a console.
type consoleState struct {
	lines  int64  // number of lines that show progress
	stalls int    // number of stalls that the kernel has reported since the last such line
	stall  string // first line of the first of these reports
}

// after returns the state after one more line. Kernel lines after a report of a stall do not count
// as progress: a report has many lines and is repeated until the stall is over. Then programs
// continue and write lines.
func (t consoleState) after(line string) consoleState {
	switch {
	case stall.MatchString(line) || blocked.MatchString(line):
		if t.stalls++; t.stall == "" {
			t.stall = line
		}
		return t
	case t.stalls > 0 && kernelLine.MatchString(line):
		return t
	}
	return consoleState{lines: t.lines + 1}
}

// blockedTwice reports whether line is the second report that the same task is blocked. Such a task is
// taken not to have run for minutes in between, and not to recover.
func (c *console) blockedTwice(line string) bool {
	found := blocked.FindStringSubmatch(line)
	if found == nil {
		return false
	}
	twice := slices.Contains(c.blocked, found[2])
	c.blocked = append(c.blocked, found[2])
	return twice
}

// reportLines is how many lines of a stall report an excerpt contains: enough for the registers and
// the stack.
const reportLines = 80

// beforeReport is how many lines before the report an excerpt contains.
const beforeReport = 200

// excerpt returns the part of the console for the error of a failed boot: the kernel's first report of a stall with
// lines before it, or the last lines.
func (c *console) excerpt() string {
	first := slices.IndexFunc(c.lines, func(l SerialLine) bool { return stall.MatchString(l.Text) || blocked.MatchString(l.Text) })
	if first < 0 {
		return "the console's last lines:\n" + text(c.lines[max(0, len(c.lines)-tailLines):])
	}
	return "the console until the kernel's first report of a stall, and that report:\n" +
		text(c.lines[max(0, first-beforeReport):min(len(c.lines), first+reportLines)])
}
