package status_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/api"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/schema"
)

// clock is a clock that the test sets.
type clock struct{ at time.Time }

func (c *clock) Now() time.Time { return c.at }

func newClock() *clock { return &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func fetched(done, total int64) pivot.Event {
	return pivot.Event{Kind: pivot.EventProgressed, Step: pivot.StepPull, Amount: pivot.Amount{Stage: pivot.Fetching, Done: done, Total: total, Layers: 1, Of: 3}}
}

// shown returns the successive last lines that a terminal showed.
func shown(text string) []string {
	return strings.FieldsFunc(strings.ReplaceAll(text, "\r\x1b[K", "\n"), func(r rune) bool { return r == '\n' })
}

// TestScreen (P63): at every width, the progress line leaves the last column free, has as many
// fields as fit, and contains only text.
func TestScreen(t *testing.T) {
	for width := range 200 {
		var out bytes.Buffer
		now := newClock()
		d := status.Display{Screen: &status.Screen{W: &out, Width: func() int { return width }}, Now: now.Now}
		d.Emit(pivot.Event{Kind: pivot.EventBegan, Step: pivot.StepPull})
		for done := int64(0); done <= 3e9; done += 3e8 {
			d.Emit(fetched(done, 3e9))
			now.at = now.at.Add(time.Second)
		}
		d.Emit(pivot.Event{Kind: pivot.EventProgressed, Step: pivot.StepPull, Amount: pivot.Amount{Stage: pivot.Writing, Done: 3e9, Total: 3e9}})
		for _, line := range shown(out.String()) {
			if len(line) >= max(width, 1) {
				t.Errorf("width %d: a line of %d columns: %q", width, len(line), line)
			}
		}
		if text := out.String(); strings.Count(text, "\n") > 0 {
			t.Errorf("width %d: another line: %q", width, text)
		}
		for least, want := range map[int]string{
			4: "0%", 10: "pull 30%", 40: "pull 30%, 900 MB of 3.0 GB", 58: "pull 30%, 900 MB of 3.0 GB, 300 MB/s, 7s left",
			80: "pull [========>                      ] 30%, 900 MB of 3.0 GB, 300 MB/s, 7s left", 35: "pull writing, 3.0 GB fetched",
		} {
			if width == least && !strings.Contains(out.String(), want) {
				t.Errorf("width %d: no %q in %q", width, want, shown(out.String()))
			}
		}
	}
}

// TestScreenKeepsLines: log lines appear completely above the progress line, which is removed
// when the step ends.
func TestScreenKeepsLines(t *testing.T) {
	var out bytes.Buffer
	screen := &status.Screen{W: &out, Width: func() int { return 40 }}
	d := status.Display{Screen: screen, Now: newClock().Now}
	_, _ = io.WriteString(screen, "before\n")
	d.Emit(fetched(1e6, 2e6))
	_, _ = io.WriteString(screen, "layer: trying again\n")
	d.Emit(pivot.Event{Kind: pivot.EventBegan, Step: pivot.StepPrepare})
	_, _ = io.WriteString(screen, "after\n")
	const line, erase = "pull [====>     ] 50%, 1.0 MB of 2.0 MB", "\r\x1b[K"
	if want := "before\n" + erase + line + erase + "layer: trying again\n" + line + erase + "after\n"; out.String() != want {
		t.Errorf("shown %q, want %q", out.String(), want)
	}
}

// TestLines (P63): without a terminal there is a line every 10 s or 10 %, whichever is later,
// and one when everything is fetched. A fast step has no lines.
func TestLines(t *testing.T) {
	for name, c := range map[string]struct {
		seconds, total int64 // of the whole transfer
		want           string
	}{
		"slow":    {600, 1e9, "10% 20% 30% 40% 50% 60% 70% 80% 90% 100%"}, // every 60 s: 10 % is later
		"fast":    {30, 1e9, "33% 66% 100%"},                              // every 10 s
		"at once": {3, 1e9, ""},
		"unknown": {30, 0, "333 667 1.0"},
	} {
		var log bytes.Buffer
		now := newClock()
		d := status.Display{Log: status.NewLog(&log, nil), Now: now.Now}
		d.Emit(pivot.Event{Kind: pivot.EventBegan, Step: pivot.StepPull})
		for i := range c.seconds * 10 {
			now.at = now.at.Add(100 * time.Millisecond)
			d.Emit(fetched(1e9*(i+1)/(c.seconds*10), c.total))
		}
		d.Emit(pivot.Event{Kind: pivot.EventProgressed, Step: pivot.StepPull, Amount: pivot.Amount{Stage: pivot.Writing, Done: 1e9, Total: c.total}})
		var got []string
		var last string
		for line := range strings.Lines(log.String()) {
			text, ok := strings.CutPrefix(line, "pivot: pull: ")
			if !ok {
				t.Errorf("%s: a line %q", name, line)
			}
			first, _, _ := strings.Cut(strings.TrimSpace(text), " ")
			got, last = append(got, strings.TrimSuffix(first, ",")), text
		}
		if quick := c.want == ""; quick && len(got) == 0 {
			continue
		}
		if last != "writing, 1.0 GB fetched\n" || strings.Join(got[:len(got)-1], " ") != c.want {
			t.Errorf("%s: %q, the last is %q, want %q", name, got, last, c.want)
		}
	}
}

// TestStream (P64): documents are of the documented kind, limited in rate, and end when the
// reader is gone.
func TestStream(t *testing.T) {
	var out bytes.Buffer
	now := newClock()
	s := status.Stream{W: &out, Now: now.Now, Lost: func(err error) { t.Error(err) }}
	s.Emit(pivot.Event{Kind: pivot.EventBegan, Step: pivot.StepPull, Message: "pulling\nx"})
	for done := range int64(100) {
		now.at = now.at.Add(50 * time.Millisecond)
		s.Emit(fetched(done, 100))
	}
	journal := pivot.JournalContent{Phase: pivot.PhaseApplying, Attempt: 2}
	s.Emit(pivot.Event{Kind: pivot.EventProgressed, Step: pivot.StepPull, Amount: pivot.Amount{Stage: pivot.Writing, Done: 100, Total: 100, Layers: 3, Of: 3}, Journal: journal})
	for _, kind := range []pivot.EventKind{pivot.EventNoted, pivot.EventEntered} {
		s.Emit(pivot.Event{Kind: kind, Journal: journal})
	}
	for _, kind := range []pivot.EventKind{pivot.EventWaiting, pivot.EventFailing} {
		s.Emit(pivot.Event{Kind: kind, Step: pivot.StepPull, Err: fault.New(fault.Unavailable, "no").WithHint("wait"), Journal: journal})
	}
	if err := schema.ValidateLines(api.Progress, out.Bytes()); err != nil {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) < 10 || len(lines) > 20 {
		t.Errorf("%d lines", len(lines))
	}
	for _, want := range []string{
		`{"apiVersion":"pivot/v1","kind":"Progress","time":"2026-01-02T03:04:05Z","event":"began","phase":"idle","step":"pull","attempt":0,"message":"pulling\nx"}`,
		`"event":"progressed","phase":"applying","step":"pull","attempt":2,"message":"","stage":"writing","bytes":100,"totalBytes":100,"layers":3,"totalLayers":3}`,
		`"error":{"message":"no","hint":"wait","permanent":false,"exitStatus":69}}`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
	lost := 0
	gone := status.Stream{W: broken{}, Now: now.Now, Lost: func(error) { lost++ }}
	for range 3 {
		gone.Emit(pivot.Event{Kind: pivot.EventNoted})
	}
	if lost != 1 {
		t.Errorf("told %d times that the reader is gone", lost)
	}
}

// broken is a writer without its reader.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// TestTee: each function is called, in order.
func TestTee(t *testing.T) {
	var got string
	emit := status.Tee(func(e pivot.Event) { got += "a" + e.Message }, func(e pivot.Event) { got += "b" + fmt.Sprint(e.Kind) })
	emit(pivot.Event{Kind: pivot.EventNoted, Message: "x"})
	if got != "axb2" {
		t.Errorf("got %q", got)
	}
}
