package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Cost is the resource usage of a program, and how it ended.
type Cost struct {
	Exit   int
	Peak   int64         // bytes of memory
	CPU    time.Duration // user and system
	Stdout string        // its end
	Stderr string
}

// Measure is the program "measure": it runs the program in its arguments and prints its Cost. A
// parent with small memory must measure it, because a child starts with the peak memory of its
// parent. A test that calls CostOf gives Measure to testscript.Main under this name.
func Measure() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		panic(err)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	cost := Cost{
		cmd.ProcessState.ExitCode(), usage.Maxrss << 10, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
		string(stdout.Bytes()[max(0, stdout.Len()-4096):]), stderr.String(),
	}
	if err := json.NewEncoder(os.Stdout).Encode(cost); err != nil {
		panic(err)
	}
}

// CostOf runs a program to its end and returns its cost.
func CostOf(t *testing.T, argv ...string) (c Cost) {
	t.Helper()
	out, err := exec.Command("measure", argv...).Output()
	if err := errors.Join(err, json.Unmarshal(out, &c)); err != nil {
		t.Fatal(err)
	}
	t.Logf("exit %d, %d MB, %s of CPU time", c.Exit, c.Peak/1e6, c.CPU)
	return c
}

// Bounded runs a program on an input that would need far more memory and time than it may take. It may take 150 MB and
// 40 s of CPU time, four times the worst input's on a busy machine. It requires the exit status, and that the output
// has a text, such as the limit that the input exceeds.
func Bounded(t *testing.T, exit int, text string, argv ...string) {
	t.Helper()
	c := CostOf(t, argv...)
	if c.Exit != exit || c.Peak > 150e6 || c.CPU > 40*time.Second || !strings.Contains(c.Stdout+c.Stderr, text) {
		t.Errorf("%q took %d MB and %s, exit %d, want at most 150 MB and 40 s, exit %d and %q\n%s%s",
			argv, c.Peak/1e6, c.CPU, c.Exit, exit, text, c.Stdout, c.Stderr)
	}
}
