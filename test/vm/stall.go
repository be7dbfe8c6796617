package vm

import (
	"regexp"
	"slices"
)

// byKernel is how a line begins that the kernel itself writes: with the time and, as a
// rule, what in it speaks. It says much else, as its command line.
const byKernel = `^\[ *\d+\.\d{6}\] (\w[\w ]*: )?`

// stall is how the kernel begins to report that a processor, or its read-copy-update,
// makes no progress. That can be over a moment later: a guest to which a busy host
// gives no processor for a while says the same.
var stall = regexp.MustCompile(byKernel + `(BUG: soft lockup - CPU#\d+ stuck|INFO: rcu_\w+ (self-detected stall|detected (expedited )?stalls) on CPU|` +
	`Watchdog detected hard LOCKUP|BUG: workqueue lockup)`)

// blocked is how the kernel begins to report that a task waits for a lock or a disk for
// too long; and which: its name and its number.
var blocked = regexp.MustCompile(byKernel + `INFO: task (\S.*:\d+) blocked .*for more than \d+ seconds`)

// ofKernel is a line that the kernel itself writes: it begins with the time.
var ofKernel = regexp.MustCompile(`^\[ *\d+\.\d{6}\]`)

// told is what the lines of a console come to.
type told struct {
	lines  int64  // that show progress
	stalls int    // what the kernel has reported since the last of them
	stall  string // the first of these reports
}

// after is what it comes to with one more line. What the kernel says after it has
// reported a stall is no progress: a report has many lines, and comes again until the
// stall is over. Then programs go on, and say something.
func (t told) after(line string) told {
	switch {
	case stall.MatchString(line) || blocked.MatchString(line):
		if t.stalls++; t.stall == "" {
			t.stall = line
		}
		return t
	case t.stalls > 0 && ofKernel.MatchString(line):
		return t
	}
	return told{lines: t.lines + 1}
}

// blockedTwice reports whether a line says for the second time that the same task is
// blocked. The task did not run once in between, for minutes: nothing heals it.
func (c *console) blockedTwice(line string) bool {
	found := blocked.FindStringSubmatch(line)
	if found == nil {
		return false
	}
	twice := slices.Contains(c.blocked, found[2])
	c.blocked = append(c.blocked, found[2])
	return twice
}

// reportLines is how many lines of a report are shown: the registers and the stack.
const reportLines = 80

// beforeReport is how many lines of what came before it are shown.
const beforeReport = 200

// account is what of the console goes into the error of a failed boot: its last lines,
// or what came before the kernel's first report of a stall, and then that report.
func (c *console) account() string {
	first := slices.IndexFunc(c.lines, func(l SerialLine) bool { return stall.MatchString(l.Text) || blocked.MatchString(l.Text) })
	if first < 0 {
		return "the console's last lines:\n" + text(c.lines[max(0, len(c.lines)-tailLines):])
	}
	return "the console until the kernel's first report of a stall, and that report:\n" +
		text(c.lines[max(0, first-beforeReport):min(len(c.lines), first+reportLines)])
}
