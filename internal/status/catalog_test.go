package status_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/pivot"
	"machine-pivot/test/tools/need"
)

const catalog = "../../systemd-units/pivot.catalog"

// messages returns the messages that have a MESSAGE_ID, with all their fields.
func messages(t *testing.T) []sent {
	t.Helper()
	var all []sent
	for _, e := range events() {
		got, _ := emit(t, e)
		all = append(all, got[0])
	}
	drifted, _ := tell(t, []string{"x"}, nil)
	return append(all, drifted...)
}

// events returns an event for each kind of such message.
func events() []pivot.Event {
	failure := fault.New(fault.Unavailable, "x").WithHint("y")
	journal := pivot.JournalContent{Attempt: 1, Target: pivot.Target{Image: pivot.ImageOf(imageref.FromOrigin("r.example/os:1"))}}
	events := []pivot.Event{
		{Kind: pivot.EventBegan, Step: pivot.StepPull, Journal: journal},
		{Kind: pivot.EventWaiting, Step: pivot.StepPull, Err: failure, Journal: journal},
		{Kind: pivot.EventFailing, Step: pivot.StepPull, Err: failure, Journal: journal},
		{Kind: pivot.EventFailing, Step: pivot.StepRead, Err: fault.New(fault.Replace, "x").WithHint("y"), Journal: journal},
	}
	for _, phase := range []pivot.Phase{pivot.PhaseApplying, pivot.PhaseCommitted, pivot.PhaseTrial, pivot.PhaseDone, pivot.PhaseFailed, pivot.PhaseUndone} {
		journal.Phase = phase
		events = append(events, pivot.Event{Kind: pivot.EventEntered, Step: pivot.StepPull, Journal: journal})
	}
	journal.Phase, journal.Features = pivot.PhaseFailed, map[string]pivot.Part{"a": {Holds: true}}
	return append(events, pivot.Event{Kind: pivot.EventEntered, Step: pivot.StepProve, Journal: journal})
}

// TestCatalog (P62): journalctl -x explains each message that has an ID, using only fields that
// the message has.
func TestCatalog(t *testing.T) {
	text, err := os.ReadFile(catalog)
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]string{}
	for _, entry := range strings.Split("\n"+string(text), "\n-- ")[1:] {
		id, rest, _ := strings.Cut(entry, "\n")
		head, body, _ := strings.Cut(rest, "\n\n")
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(id) || entries[id] != "" || strings.TrimSpace(body) == "" {
			t.Errorf("entry %q is none, is there twice, or says nothing", id)
		}
		for line := range strings.Lines(head) {
			if !regexp.MustCompile(`^(Subject|Defined-By|Support|Documentation): .+`).MatchString(line) {
				t.Errorf("entry %s has the line %q", id, line)
			}
		}
		entries[id] = rest
	}
	for _, m := range messages(t) {
		id := m.fields["MESSAGE_ID"]
		entry, ok := entries[id]
		if !ok {
			t.Errorf("nothing explains %s, %q", id, m.message)
		}
		for _, name := range regexp.MustCompile(`@([A-Z_]+)@`).FindAllStringSubmatch(entry, -1) {
			if m.fields[name[1]] == "" {
				t.Errorf("%s is explained by %s, which its message %q does not have", id, name[1], m.message)
			}
		}
		delete(entries, id)
	}
	if len(entries) > 0 {
		t.Errorf("explained but never sent: %v", entries)
	}
}

// TestCatalogCompiles (P62): systemd reads the catalog and finds each entry.
func TestCatalogCompiles(t *testing.T) {
	need.Program(t, "journalctl")
	text, err := os.ReadFile(catalog)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, dir := range []string{"usr/lib/systemd/catalog", "var/lib/systemd/catalog"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	if err := errors.Join(err, os.WriteFile(filepath.Join(root, "usr/lib/systemd/catalog/pivot.catalog"), text, 0o644)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("journalctl", "--root="+root, "--update-catalog").CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("journalctl --update-catalog: %v\n%s", err, out)
	}
	for _, m := range messages(t) {
		id := m.fields["MESSAGE_ID"]
		out, err := exec.Command("journalctl", "--root="+root, "--dump-catalog", id).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Subject: ") {
			t.Errorf("journalctl --dump-catalog %s: %v\n%s", id, err, out)
		}
	}
}
