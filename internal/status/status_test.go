package status_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/pid1"
	"machine-pivot/internal/printable"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// reporter returns a Reporter on a scratch host, with its log and its notifications.
func reporter(t *testing.T) (r *status.Reporter, log *bytes.Buffer, reported *[]string) {
	t.Helper()
	log, reported = &bytes.Buffer{}, &[]string{}
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &status.Reporter{
		Root: t.TempDir(), Log: status.NewLog(log, nil),
		Notify: func(s string) { *reported = append(*reported, s) },
		Now:    func() time.Time { clock = clock.Add(100 * time.Millisecond); return clock },
	}, log, reported
}

func TestEvents(t *testing.T) {
	r, log, reported := reporter(t)
	err := fault.New(fault.Unavailable, "connection refused").WithHint("start the registry")
	journal := pivot.JournalContent{Phase: pivot.PhaseApplying, Attempt: 1}
	r.Emit(pivot.Event{Kind: pivot.EventBegan, Step: pivot.StepPull, Message: "pulling x", Journal: journal})
	for done := range int64(20) {
		r.Emit(pivot.Event{Kind: pivot.EventProgressed, Step: pivot.StepPull, Amount: pivot.Amount{Stage: pivot.Fetching, Done: done * 1e6, Total: 20e6}, Journal: journal})
	}
	r.Emit(pivot.Event{Kind: pivot.EventProgressed, Step: pivot.StepPull, Amount: pivot.Amount{Stage: pivot.Writing, Done: 20e6, Total: 20e6}, Journal: journal})
	if last := (*reported)[len(*reported)-1]; last != "pull: writing, 20.0 MB fetched" {
		t.Errorf("systemd was told last %q", last)
	}
	r.Emit(pivot.Event{Kind: pivot.EventWaiting, Step: pivot.StepPull, Err: err, Message: "try 1 failed, next in 1s", Journal: journal})
	journal.Error, journal.Phase = pivot.FailureOf(err), pivot.PhaseFailed
	r.Emit(pivot.Event{Kind: pivot.EventFailing, Step: pivot.StepPull, Err: err, Journal: journal})

	wantLog := "pivot: pull: pulling x\npivot: pull: warning: try 1 failed, next in 1s: connection refused\n" +
		"pivot: pull: error: connection refused\npivot: pull: hint: start the registry\n"
	if log.String() != wantLog {
		t.Errorf("log is\n%s\nwant\n%s", log, wantLog)
	}
	if n := len(*reported); n > 10 {
		t.Errorf("systemd was told %d times: progress must be rare", n)
	}
	if !slices.Contains(*reported, "pull: 50%, 10.0 MB of 20.0 MB, 10.0 MB/s, 1s left") {
		t.Errorf("systemd was told %q", *reported)
	}
	s, rerr := status.Read(r.Root, "")
	if rerr != nil || s.Phase != pivot.PhaseFailed || s.Error.Hint != "start the registry" || s.Error.Permanent {
		t.Errorf("status %+v, %v", s, rerr)
	}
}

// TestKeys: the keys are a contract with other programs.
func TestKeys(t *testing.T) {
	r, _, _ := reporter(t)
	r.Emit(pivot.Event{Kind: pivot.EventFailing, Err: errors.New("x"), Journal: pivot.JournalContent{
		Error: pivot.FailureOf(errors.New("x")), Started: time.Unix(0, 0), Phases: []pivot.Duration{{Name: "pull", Seconds: 1.5}},
	}})
	data, err := os.ReadFile(filepath.Join(r.Root, "run/pivot/status.json"))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"phase", "step", "percent", "attempt", "target", "booted", "error", "started", "phases", "pending", "history"} {
		if _, ok := object[key]; !ok {
			t.Errorf("no key %q in\n%s", key, data)
		}
	}
	for _, want := range []string{`"message": "x"`, `"hint": ""`, `"permanent": true`, `"name": "pull"`, `"seconds": 1.5`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %s in\n%s", want, data)
		}
	}
}

func TestWithoutARunTheJournalTells(t *testing.T) {
	root := t.TempDir()
	if s, err := status.Read(root, ""); err != nil || s.Phase != pivot.PhaseIdle {
		t.Errorf("a fresh host: %+v, %v", s, err)
	}
	if err := pivot.JournalIn(root).Save(pivot.JournalContent{Phase: pivot.PhaseDone, Attempt: 2}); err != nil {
		t.Fatal(err)
	}
	if s, err := status.Read(root, ""); err != nil || s.Phase != pivot.PhaseDone || s.Attempt != 2 {
		t.Errorf("after a run: %+v, %v", s, err)
	}
}

// TestLastCommand: how a command has ended, for each kind of event that tells it.
func TestLastCommand(t *testing.T) {
	failed, stopped := errors.New("x"), fmt.Errorf("cannot go on: %w", fault.Stopped{Signal: "interrupt"})
	for _, c := range []struct {
		kind pivot.EventKind
		err  error
		want status.Result
	}{
		{pivot.EventBegan, nil, status.ResultRunning},
		{pivot.EventNoted, failed, status.ResultRunning},
		{pivot.EventEnded, nil, status.ResultSucceeded},
		{pivot.EventEnded, failed, status.ResultFailed},
		{pivot.EventFailing, failed, status.ResultFailed},
		{pivot.EventFailing, stopped, status.ResultInterrupted},
	} {
		got := status.Of(pivot.Event{Kind: c.kind, Command: "apply", Err: c.err})
		if last := got.LastCommand; last == nil || last.Name != "apply" || last.Result != c.want || (last.Error != nil) != (c.err != nil) || got.Failed() != (c.want == status.ResultFailed || c.want == status.ResultInterrupted) {
			t.Errorf("event %d with %v: %+v, want %s", c.kind, c.err, last, c.want)
		}
	}
	if got := status.Of(pivot.Event{Kind: pivot.EventEnded}); got.LastCommand != nil || got.Failed() {
		t.Errorf("without a command: %+v", got.LastCommand)
	}
}

// TestAnotherStart: a soft reboot keeps /run. The status of a start before it is over: the journal tells.
func TestAnotherStart(t *testing.T) {
	r, _, _ := reporter(t)
	r.Emit(pivot.Event{Kind: pivot.EventFailing, Start: "boot", Command: "rebase", Err: errors.New("x"), Journal: pivot.JournalContent{Phase: pivot.PhaseFailed}})
	if err := pivot.JournalIn(r.Root).Save(pivot.JournalContent{Phase: pivot.PhaseDone}); err != nil {
		t.Fatal(err)
	}
	for now, phase := range map[pid1.StartID]pivot.Phase{"boot": pivot.PhaseFailed, "": pivot.PhaseFailed, "boot+1": pivot.PhaseDone, "other": pivot.PhaseDone} {
		if s, err := status.Read(r.Root, now); err != nil || s.Phase != phase || (s.LastCommand != nil) != (phase == pivot.PhaseFailed) {
			t.Errorf("in start %q: phase %s, last command %+v, %v", now, s.Phase, s.LastCommand, err)
		}
	}
}

// TestHostileText: text from a registry cannot add a line, control a terminal, or add an
// assignment in systemd's protocol.
func TestHostileText(t *testing.T) {
	r, log, reported := reporter(t)
	r.Consoles = true
	for path, content := range map[string]string{"sys/class/tty/console/active": "tty0\n", "dev/tty0": ""} {
		file := filepath.Join(r.Root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	const text = "no\x1b[2J\u009b\u202e\nMAINPID=1\npivot: prove: done"
	err := fault.New(fault.Unavailable, text).WithHint(text)
	r.Emit(pivot.Event{Kind: pivot.EventWaiting, Step: pivot.StepPull, Err: err, Message: "try 1 failed"})
	r.Emit(pivot.Event{Kind: pivot.EventNoted, Message: text})
	r.Emit(pivot.Event{Kind: pivot.EventFailing, Step: pivot.StepPull, Err: err})
	shown, rerr := os.ReadFile(filepath.Join(r.Root, "dev/tty0"))
	if rerr != nil {
		t.Fatal(rerr)
	}
	for name, lines := range map[string]string{"log": log.String(), "console": strings.ReplaceAll(string(shown), "\r\n", "\n")} {
		if !strings.Contains(lines, `no\x1b[2J\u009b\u202e`) {
			t.Errorf("the %s does not show the text: %q", name, lines)
		}
		for line := range strings.Lines(lines) {
			if line = strings.TrimSuffix(line, "\n"); printable.Line(line) != line || strings.HasPrefix(line, "MAINPID") || strings.HasPrefix(line, "pivot: prove") {
				t.Errorf("the %s shows %q", name, line)
			}
		}
	}
	for _, status := range *reported {
		if printable.Line(status) != status {
			t.Errorf("systemd is told %q", status)
		}
	}
}
