package vm

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// lockup is a kernel's report of a processor that loops in the kernel, shortened.
const lockup = `[  32.727217] watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [systemd:1]
[  32.727217] CPU: 0 PID: 1 Comm: systemd Not tainted 6.1.0-56-cloud-amd64 #1
[  32.727217] RIP: 0010:smp_call_function_many_cond+0x11a/0x2d0
[  32.727217]  </TASK>
`

// TestStalls parses kernel reports of tasks and processors that make no progress.
func TestStalls(t *testing.T) {
	const waits = "[  242.660085] INFO: task %s blocked for more than %d seconds.\n[  242.660085]  </TASK>\n"
	systemd := fmt.Sprintf(waits, "systemd:1", 120)
	for _, c := range []struct {
		name, in string
		want     consoleState
		end      string // what the reason quotes; "": the machine is not killed
	}{
		{"no report", "[    1.000000] Linux version 6.1\n[  OK  ] Started\n", consoleState{lines: 2}, ""},
		{"a processor", "a\n" + lockup + lockup, consoleState{1, 2, "CPU#0 stuck for 26s! [systemd:1]"}, ""},
		{"a program goes on", lockup + "[  OK  ] Started\n[    1.000000] audit: x\n", consoleState{lines: 2}, ""},
		{"read-copy-update", "[   21.5] x\n[   70.364000] rcu: INFO: rcu_preempt self-detected stall on CPU\n" +
			"[   70.364000] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n" +
			"[   70.364000] rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 1-... } 21 jiffies s: 245\n", consoleState{1, 3, "self-detected stall"}, ""},
		{"with interrupts off", "[   70.364000] NMI watchdog: Watchdog detected hard LOCKUP on cpu 1\n", consoleState{0, 1, "LOCKUP"}, ""},
		{"a task, once", systemd, consoleState{0, 1, "task systemd:1"}, ""},
		{"two tasks", systemd + fmt.Sprintf(waits, "kworker/0:1:15", 120), consoleState{0, 2, "task systemd:1"}, ""},
		{"a task, twice", systemd + "a\n" + fmt.Sprintf(waits, "systemd:1", 241), consoleState{1, 1, "more than 241"}, "systemd:1 blocked for more than 241 seconds"},
		{"a disk, twice", strings.Repeat("[  242.660085] INFO: task a b:7 blocked in I/O wait for more than 120 seconds.\n", 2), consoleState{0, 2, "a b:7"}, "a b:7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			con := &console{}
			_, err := con.Write([]byte(c.in))
			o, _ := errors.AsType[endError](err)
			if got := con.state(); got.lines != c.want.lines || got.stalls != c.want.stalls || !strings.Contains(got.stall, c.want.stall) {
				t.Errorf("the console comes to %+v, want %+v", got, c.want)
			}
			if (o.reason == Hung) != (c.end != "") || !strings.Contains(o.line, c.end) {
				t.Errorf("end %v, want it to say %q", err, c.end)
			}
		})
	}
}

// TestStuck simulates kernels that report a stall every 24 seconds.
func TestStuck(t *testing.T) {
	const between = 24 * time.Second
	for _, c := range []struct {
		name       string
		speed      float64 // how much CPU time the machine uses, in processors
		reports    int
		well       int // a program writes a line before every well-th report; 0: none does
		from, to   time.Duration
		end        Reason
		says       string
		goesSilent bool // its processors are idle between the reports
	}{
		{name: "a processor loops", speed: 1, reports: 100, from: 204 * time.Second, to: 230 * time.Second, end: Hung, says: "CPU#0 stuck"},
		{name: "two processors loop", speed: 2, reports: 100, from: 114 * time.Second, to: 140 * time.Second, end: Hung, says: "CPU#0 stuck"},
		{name: "a processor loops on a busy host", speed: 0.2, reports: 100, from: 15 * time.Minute, to: 16 * time.Minute, end: Hung, says: "CPU#0 stuck"},
		{name: "the host gives no processor", speed: 0.02, reports: 20},
		{name: "once, then it computes", speed: 1, reports: 1},
		{name: "for a minute of processor time", speed: 0.4, reports: 7},
		{name: "again and again, and goes on each time", speed: 0.5, reports: 50, well: 2},
		{name: "rests while its kernel reports", speed: 0.01, reports: 100, goesSilent: true, from: 3 * time.Minute, to: 4 * time.Minute, end: Hung, says: "idle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := progress{limits: DefaultLimits(), every: sampleInterval}
			con := &console{}
			var s sample
			var err error
			for n := 1; n <= c.reports && err == nil; n++ {
				for range between / sampleInterval {
					s.at += sampleInterval
					s.cpuTime += time.Duration(c.speed * float64(sampleInterval))
					s.runnable, s.consoleState = !c.goesSilent, con.state()
					if err = p.observe(s); err != nil {
						break
					}
				}
				if c.well > 0 && n%c.well == 0 {
					_, _ = con.Write([]byte("[  OK  ] Started\n"))
				}
				_, _ = con.Write([]byte(lockup))
			}
			o, _ := errors.AsType[endError](err)
			if o.reason != c.end || !strings.Contains(o.line, c.says) {
				t.Fatalf("after %s: %v, want %q and %q", s.at, err, c.end, c.says)
			}
			if err != nil && (s.at < c.from || s.at > c.to) {
				t.Errorf("given up after %s, want %s to %s", s.at, c.from, c.to)
			}
		})
	}
}

// TestAccount checks that the error of a failed boot contains the lines needed to find the cause.
func TestAccount(t *testing.T) {
	var in strings.Builder
	for i := range 300 {
		fmt.Fprintf(&in, "line %03d\n", i)
	}
	quiet := &console{}
	_, _ = quiet.Write([]byte(in.String()))
	if got := quiet.excerpt(); strings.Contains(got, "line 269") || !strings.Contains(got, "line 270") || !strings.HasSuffix(got, "line 299\n") {
		t.Errorf("without a report: %s", got)
	}
	fmt.Fprint(&in, strings.Repeat(lockup, 100))
	stuck := &console{}
	_, _ = stuck.Write([]byte(in.String()))
	got := stuck.excerpt()
	for text, want := range map[string]bool{"line 099": false, "line 100": true, "line 299": true, "smp_call_function_many_cond": true} {
		if strings.Contains(got, text) != want {
			t.Errorf("shows %q: %v, want %v:\n%s", text, !want, want, got)
		}
	}
	if n := strings.Count(got, "\n"); n != 281 {
		t.Errorf("%d lines, want a bound", n)
	}
}
