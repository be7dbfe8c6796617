package status_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/journal"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// sent is a journal entry.
type sent struct {
	message  string
	priority journal.Priority
	fields   map[string]string
}

// emit reports events on a scratch host and returns the journal entries and the log.
func emit(t *testing.T, events ...pivot.Event) (got []sent, lines string) {
	t.Helper()
	var w bytes.Buffer
	log := status.NewLog(&w, func(message string, p journal.Priority, fields map[string]string) error {
		got = append(got, sent{message, p, fields})
		return nil
	})
	r := &status.Reporter{Root: t.TempDir(), Log: log, Notify: func(string) {}, Now: time.Now}
	for _, e := range events {
		r.Emit(e)
	}
	return got, w.String()
}

// TestJournalFields (P40): one entry for each event, with the fields that programs need.
func TestJournalFields(t *testing.T) {
	err := fault.New(fault.Unavailable, "connection refused").WithHint("start the registry")
	content := pivot.JournalContent{Phase: pivot.PhaseApplying, Attempt: 2, Target: pivot.Target{Image: pivot.ImageOf(imageref.FromOrigin("r.example/os@sha256:aa"))}}
	got, lines := emit(t, pivot.Event{Kind: pivot.EventWaiting, Step: pivot.StepPull, Err: err, Message: "try 1 failed", Journal: content})
	if len(got) != 1 {
		t.Fatalf("the journal got %+v", got)
	}
	want := map[string]string{
		"SYSLOG_IDENTIFIER": "pivot", "MESSAGE_ID": "da8f62a29712404db0926b3903d3cb82",
		"PIVOT_PHASE": "applying", "PIVOT_STEP": "pull", "PIVOT_ATTEMPT": "2", "PIVOT_IMAGE": "r.example/os@sha256:aa",
		"PIVOT_HINT": "start the registry", "PIVOT_TRANSIENT": "true",
	}
	for name, value := range want {
		if got[0].fields[name] != value {
			t.Errorf("%s=%q, want %q", name, got[0].fields[name], value)
		}
	}
	if len(got[0].fields) != len(want) || got[0].priority != journal.PriWarning {
		t.Errorf("entry %+v", got[0])
	}
	if message := "pull: warning: try 1 failed: connection refused"; got[0].message != message || lines != "pivot: "+message+"\n" {
		t.Errorf("message %q, line %q", got[0].message, lines)
	}
}

// TestMessageIDs compares the documented table with what is sent: one ID per event, and no
// undocumented ones.
func TestMessageIDs(t *testing.T) {
	documented, err := os.ReadFile("../../docs/status.md")
	if err != nil {
		t.Fatal(err)
	}
	messageRow := regexp.MustCompile("^\\| `([0-9a-f]{32})` \\| (.*) \\|\n$")
	table := map[string]string{}
	for line := range strings.Lines(string(documented)) {
		if row := messageRow.FindStringSubmatch(line); row != nil {
			table[row[1]] = row[2]
		}
	}
	failure := errors.New("x")
	for says, e := range map[string]pivot.Event{
		"a step began": {Kind: pivot.EventBegan},
		"a try failed for a transient reason; it will be tried again": {Kind: pivot.EventWaiting, Err: failure},
		"phase `applying`":  {Kind: pivot.EventEntered, Journal: pivot.JournalContent{Phase: pivot.PhaseApplying}},
		"phase `committed`": {Kind: pivot.EventEntered, Journal: pivot.JournalContent{Phase: pivot.PhaseCommitted}},
		"phase `done`":      {Kind: pivot.EventEntered, Journal: pivot.JournalContent{Phase: pivot.PhaseDone}},
		"phase `failed`":    {Kind: pivot.EventEntered, Journal: pivot.JournalContent{Phase: pivot.PhaseFailed}},
		"phase `undone`: somebody went back after a first boot":       {Kind: pivot.EventEntered, Journal: pivot.JournalContent{Phase: pivot.PhaseUndone}},
		"phase `trial`: the new system runs, and has to prove itself": {Kind: pivot.EventEntered, Journal: pivot.JournalContent{Phase: pivot.PhaseTrial}},
		"phase `failed`, of a system on trial":                        {Kind: pivot.EventEntered, Journal: pivot.JournalContent{Phase: pivot.PhaseFailed, Features: map[string]pivot.Part{"a": {Holds: true}}}},
		"the run ended with a failure":                                {Kind: pivot.EventFailing, Err: failure},
		"the run ended: the machine must be replaced":                 {Kind: pivot.EventFailing, Err: fault.New(fault.Replace, "x")},
	} {
		var ids []string
		got, _ := emit(t, e)
		for _, s := range got {
			if id := s.fields["MESSAGE_ID"]; id != "" {
				ids = append(ids, id)
			}
		}
		if len(ids) != 1 || table[ids[0]] != says {
			t.Errorf("%q is sent with %q, documented are %v", says, ids, table)
			continue
		}
		delete(table, ids[0])
	}
	drifted, _ := tell(t, []string{"x"}, nil)
	for i, says := range []string{
		"a watched machine now differs from its target, by `PIVOT_DIFFERENCES` differences", "it no longer differs",
	} {
		id := drifted[i].fields["MESSAGE_ID"]
		if table[id] != says {
			t.Errorf("%q is sent with %q", says, id)
		}
		delete(table, id)
	}
	if len(table) > 0 {
		t.Errorf("documented but never sent: %v", table)
	}
}

// TestConsoles (P24, P40): every console of a held machine shows the reason.
func TestConsoles(t *testing.T) {
	r, _, _ := reporter(t)
	r.Consoles = true
	for path, content := range map[string]string{
		"sys/class/tty/console/active": "tty0 ttyS0\n", "dev/tty0": "", "dev/ttyS0": "",
	} {
		file := filepath.Join(r.Root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	r.Emit(pivot.Event{Kind: pivot.EventFailing, Err: fault.New(fault.Refused, "cannot pivot").WithHint("install it anew")})
	for _, tty := range []string{"tty0", "ttyS0"} {
		text, err := os.ReadFile(filepath.Join(r.Root, "dev", tty))
		for _, want := range []string{"kubelet is held", "cannot pivot\r\n", "What to do: install it anew", "All steps: man pivot-failed\r\n"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s shows %q (%v), want %q", tty, text, err, want)
			}
		}
	}
}
